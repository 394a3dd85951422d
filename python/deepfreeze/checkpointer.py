"""The checkpointer of one run: saves without stopping it, restores what verifies."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

from deepfreeze import _core
from deepfreeze.arguments import absolute, absolute_parent, checked_step, floats, strings
from deepfreeze.budget import policy_of
from deepfreeze.calls import Calls, alone
from deepfreeze.capture import environment, paused_gc, table_of, walk
from deepfreeze.chosen import Rule, Step, at_step, point_in, recorded_rule
from deepfreeze.closing import close_engine, closed, end_engine, opened
from deepfreeze.describe import CheckpointList, Described, SaveLines
from deepfreeze.errors import CheckpointError
from deepfreeze.half_restored import HalfRestored
from deepfreeze.handle import Completer, SaveHandle, check_process
from deepfreeze.lazy import LazyCapture
from deepfreeze.memo import Memo
from deepfreeze.names import KeyFilter
from deepfreeze.policy import Every, Keep, SavePolicy
from deepfreeze.ranks import declining, ranks_of_job
from deepfreeze.reading import (
    Restorer,
    RestoreReport,
    loaded,
    newest_good,
    together,
    verified,
)
from deepfreeze.textfile import textfile_of
from deepfreeze.window import Watch

log = logging.getLogger("deepfreeze")


class Checkpointer(Described):
    """Saves and restores the state of one training run, kept in a directory.

    A failed save never stops training: it is raised from its handle, counted in `failed_saves` and
    logged. For one thread at a time; handles for any. In a forked child it refuses every call.

    What is attached may be captured while training goes on. The profile "latency" does that, which
    blocks least per save; "throughput" copies all before save() returns, on all cores, which takes
    least time in all if training keeps them busy (not what exceeds `arena_bytes_max`, nor what was
    captured early); "auto" takes the first while training leaves a core free. A state that exceeds
    `arena_bytes_max` streams through, and its fences wait for the disk.

    A checkpoint whose statistics count NaN or infinities is never the best, and does not push out
    the newest that holds none. A state with infinities on purpose, in a mask say, is never finite.

    Several ranks all open the run, and make the same calls in the same order. What they have alike
    is divided among them; what differs must be RNG, df.per_rank(), a shard of a DTensor, or have
    another name on each. docs/operations.md: environment variables, limits, signals.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        every: Every | None = None,
        keep: Keep | None = None,
        parent: tuple[str | os.PathLike[str], int] | None = None,
        on_busy: Literal["block", "skip"] = "block",
        strict_saves: bool = False,
        profile: Literal["auto", "latency", "throughput"] = "auto",
        arena_bytes_max: int | None = None,
        statistics: bool = False,
        prometheus_textfile: str | os.PathLike[str] | None = None,
        ranks: _core.Ranks | Literal["auto"] | None = "auto",
        commit_wait_seconds: float = 600.0,
        audit_saves: int = 100,
        read_only: bool = False,
    ) -> None:
        """Opens the run in the directory `path`, which is made if it is not there.
        every: When step() saves, of df.every(); without it at each step.
        keep: Which checkpoints stay, of df.keep(); without it all.
        parent: The run and the step that a new run branches from.
        on_busy: While a save is in flight another waits ("block") or is left out ("skip").
        strict_saves: Also raise the error of a failed save from the next call.
        profile: When attached state is captured, "auto", "latency" or "throughput".
        arena_bytes_max: The most memory for that, at least 8 MiB, and as much for other state.
        statistics: Store each tensor's range and its count of NaN and infinities: one more pass.
        prometheus_textfile: A name.prom of its own, on a local disk, for the node exporter.
        ranks: "auto" (of torch.distributed, if there are several), None (alone), or df.*Ranks().
        commit_wait_seconds: After rank 0, until a save fails that the others have not written.
        audit_saves: Compare all that ranks have alike within so many saves; 0: never.
        read_only: For restore() alone. Otherwise a directory that can't be written is refused.
        """
        rules = self._keep = keep or Keep(None, None, None)
        self._parent, self.path = absolute_parent(parent), absolute(path)
        self._is_of_parent = False  # what restore() tries
        self.last_restore: RestoreReport | None = None
        self._textfile = textfile_of(self.path, prometheus_textfile)
        self._ranks = ranks_of_job() if ranks == "auto" else ranks
        self._engine = _core.Engine(
            os.fspath(self.path),
            keep_last=rules.last,
            keep_every=rules.every,
            keep_best=rules.best,
            parent=self._parent,
            on_busy=on_busy,
            profile=profile,
            arena_bytes_max=arena_bytes_max,
            statistics=statistics,
            ranks=self._ranks,
            commit_wait_max_seconds=commit_wait_seconds,
            audit_saves=audit_saves,
            read_only=read_only,
        )
        self._calls = Calls()
        self._lazy = LazyCapture(self._engine, self._calls)
        self._policy = policy_of(every)
        self._strict_saves = strict_saves
        settled = None if self._textfile is None else self._textfile.settled
        self._completer = Completer(settled, SaveLines(self.path, self._ranks).saved)
        self._memo = Memo()
        self._half_restored = HalfRestored()
        self._closed = False  # no more calls
        self._ended = False  # close() has come to its end
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(
            self, close_engine, self._engine, self._completer, self._owner
        )
        self._finalizer.atexit = False  # closing does it, with a deadline
        opened(self)

    @property
    def failed_saves(self) -> int:
        """How many saves have failed since this checkpointer was opened."""
        return self._completer.failed_saves

    @property
    def policy(self) -> SavePolicy:
        """What decides in step(); str() of it says when, and why where it has measured."""
        return self._policy

    @alone()
    def step(
        self,
        step: int,
        state: object,
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> SaveHandle | None:
        """Saves when the policy says so; without `every`, at each step. None where it did not."""
        try:
            step = checked_step(step)
            self._policy.stepped(step)
            due = self._is_due(step)
            handle = self._checked_save(step, state, metrics, tags) if due else None
        finally:
            self._lazy.discard_early()  # nothing, unless no save has taken it
        arms = self._lazy.captures_early and self._is_due(step + 1)
        if not due:  # the other ranks make no call now that could be told of it
            self._raise_failed()
        if arms:
            self._arm(state)
        return handle

    def _is_due(self, step: int) -> bool:
        due = self._policy.due(step)
        if self._ranks is None or self._policy.counts_steps_alone:
            return due
        try:
            return self._engine.as_rank0(due)
        except CheckpointError:  # the ranks are lost: the save will say it
            return True

    def _declining(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._ranks is None else declining(self._engine)

    def _arm(self, state: object) -> None:
        try:
            _, owners, table, watches = self._captured(state)
            self._lazy.arm(owners, table, watches)
            self._policy.armed()
        except CheckpointError as error:  # the save itself will say it
            log.debug("no early capture: %s", error)

    @alone()
    def prewarm(self, state: object) -> None:
        """Sets up now what the first save() of such a state would, so that it takes no longer.

        Takes and registers the memory, plans the file, claims the run. Nothing is saved. Call it
        after restore(), once the state has its size: optimizers make theirs in their first step.
        Raises what save() would, and CheckpointError where memory or the disk are refused.
        """
        with self._declining():
            self._raise_failed()
            self._lazy.discard_early()  # it has the same table
            text, _, table, _ = self._captured(state)
        self._engine.prewarm(table, text, self._lazy.streams())
        self._policy.interrupted()

    @alone()
    def save(
        self,
        step: int,
        state: object,
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> SaveHandle | None:
        """Saves `state` as `step`; None where it was skipped.

        Returns once all is captured that is not attached: the rest follows while training runs.
        A signal handler's that comes into another call of this checkpointer is skipped.

        EncodeError, before anything is written, names what can't be stored. A later failure, or
        one for want of memory, is the handle's.
        """
        return self._checked_save(step, state, metrics, tags)

    def _checked_save(
        self,
        step: int,
        state: object,
        metrics: Mapping[str, float] | None,
        tags: Mapping[str, str] | None,
    ) -> SaveHandle | None:
        try:
            with self._declining():
                self._raise_failed()
                step = checked_step(step)
                self._half_restored.refuse(step)
                numbers, texts = floats(metrics or {}), strings(tags or {})
            self._policy.saving()
            return self._save(step, state, numbers, texts)
        finally:
            self._lazy.discard_early()  # nothing, unless no save has taken it

    def _save(
        self, step: int, state: object, metrics: dict[str, float], tags: dict[str, str]
    ) -> SaveHandle | None:
        try:
            with self._declining():
                text, owners, table, watches = self._captured(state)
                self._lazy.settle_early(watches)
            # An interrupt may come whenever the engine returns: an engine's handle that nobody
            # has fails its save, and lets go of the memory first.
            native = self._engine.save(
                step,
                table,
                text,
                metrics,
                tags,
                environment(),
                # What is on devices is copied later, guarded or not: its memory is held until then.
                confirm=bool(watches) or self._lazy.is_on_devices,
                streams=self._lazy.streams(),
            )
        except CheckpointError as error:
            if error.code in ("encode", "invalid_argument", "mismatch"):
                raise
            return self._failed_save(step, error)
        finally:
            self._engine.discard_capture()  # nothing, unless the engine was not reached
        if native is None:
            if self._textfile is not None:
                self._textfile.skipped()
            return None
        handle = None
        try:
            # Copied at once: nothing can be torn any more, and the engine asks for no confirmation.
            late = native.status().guarded_bytes > 0
            window = self._lazy.open_window(owners, watches) if late else None
            handle = SaveHandle(step, native, window)
            self._completer.add(handle)
        except BaseException:
            native = handle = None  # else who keeps the exception has them, and the save never ends
            raise
        self._policy.saved(handle)
        return handle

    def _captured(self, state: object) -> tuple[str, list[object], _core.Table, dict[int, Watch]]:
        with paused_gc():
            capture = walk(state, self._memo, self._ranks.rank if self._ranks else None)
            watches = self._lazy.watch(capture)
            table = table_of(capture.own_entries(), self._memo)
            return capture.text, capture.owners, table, watches

    def _failed_save(self, step: int, error: CheckpointError) -> SaveHandle:
        self._policy.saved()
        handle = SaveHandle(step, None)
        self._completer.failed_at_once(handle, error)
        return handle

    @alone(refused=True)
    def restore(
        self,
        state: object,
        step: Step = None,
        keys: Sequence[str] | None = None,
        strict: bool = True,
        verify: bool = True,
    ) -> int | None:
        """Fills `state` in place from the newest checkpoint that verifies; returns its step.

        `step` asks for another one: its number, or "best", "best:METRIC", "best:METRIC:min|max" as
        in best(); "latest" is the newest too. None is returned if nothing was ever committed; a new
        branch starts from its parent's step. A checkpoint that does not verify is passed over with
        a warning, unless `step` asks for that one; `last_restore` tells. Nothing is claimed before
        the next save(), so that a run which another process writes may be restored from. `keys` are
        shell patterns on names: what they don't choose stays as it is. With strict, missing and
        unexpected names and values of another meaning are a MismatchError, raised before anything
        is modified; without, they stay as they are, and `last_restore` says which and why.

        Containers keep their identity. One with only plain values in it, a history of metrics
        say, is data: it becomes what was saved, whatever its keys. Names are compared at the top
        level and wherever tensors or objects are.
        """
        self.fence()  # what is restored is written in place
        restorer = Restorer(
            state, KeyFilter(keys), self._engine, self._ranks, strict=strict, verify=verify
        )
        try:
            found = newest_good(lambda: self._candidates(step), restorer.restore, step=step)
        except BaseException as error:
            self._half_restored.failed(restorer, error)
            raise
        if found is None:
            return None
        info, plan, passed_over = found
        if not self._is_of_parent:
            self._engine.continue_from(info)
        self._half_restored.restored(plan, whole=keys is None and strict)
        self._policy.saved()
        self.last_restore = restorer.report(info, plan, passed_over)
        return info.step

    def _candidates(self, step: Step) -> list[_core.CheckpointInfo]:
        """What restore() tries, in this order; of the parent where the run has none yet."""
        infos = self._engine.candidates()
        self._is_of_parent = not infos and self._parent is not None
        with together(self._engine, "the checkpoint to restore") as subject:
            if self._is_of_parent and self._parent is not None:
                infos = point_in(*self._parent)
            infos = at_step(infos, step, self._best_rule)
            subject += [f"step {info.step}, attempt {info.attempt_id}" for info in infos[:1]]
        return infos

    def _best_rule(self) -> Rule | None:
        """By which metric a checkpoint is the best: ours, or that of the run's last writer."""
        return self._keep.best or recorded_rule(self.path)()

    def continue_from(self, info: _core.CheckpointInfo) -> None:
        """Counts `info`, read by other means, as restored: the next save goes on from there."""
        self._check_usable()
        self._engine.continue_from(info)

    def load(self, step: Step = None, keys: Sequence[str] | None = None) -> Any:
        """The values of a checkpoint: tensors where torch is imported, else NumPy arrays.

        Without `step`, of the newest that verifies. `step` and `keys` as in restore; in a list,
        None stands for what they don't choose.
        """
        look = partial(self._listed, step)
        return loaded(look, step, KeyFilter(keys), self.path, shows=self._is_first)

    def _listed(self, step: Step) -> list[_core.CheckpointInfo]:
        return at_step(self.checkpoints(), step, self._best_rule)

    def checkpoints(self) -> CheckpointList:
        """All committed checkpoints, newest first, with their metrics and tags.

        One whose commit record no longer verifies is listed with its `fault`.
        """
        check_process(self._owner)
        return CheckpointList(_core.list_checkpoints(os.fspath(self.path)))

    def steps(self) -> list[int]:
        """The committed steps of the current line, in order."""
        return sorted({info.step for info in self._sound() if not info.abandoned})

    def latest(self) -> int | None:
        """The newest committed step."""
        infos = self._sound()
        return infos[0].step if infos else None

    def best(self, metric: str | None = None, mode: str | None = None) -> int | None:
        """The best step of the current line by a metric; None if nothing is committed.

        Without arguments by the rule of `keep`, or else of the run's last writer. `mode`, "min" or
        "max", is needed for a metric that no rule names, unless its name ends in "loss". A state
        known to hold NaN or infinities never is the best; of equal ones the newer is.
        """
        infos = self.checkpoints()
        return _core.best_of(infos, metric, mode, self._best_rule()).step if infos else None

    def _sound(self) -> list[_core.CheckpointInfo]:
        return [info for info in self.checkpoints() if not info.fault]

    def verify(self, step: Step = None) -> list[_core.Fault]:
        """Reads and checks every byte of a step, or of the newest; an empty list means good."""
        return verified(partial(self._listed, step), step, self.path, shows=self._is_first)

    def attach(self, target: object, mode: Literal["window", "after_update"] = "window") -> None:
        """Has what an optimizer or module owns captured after save() has returned.

        Of an optimizer: its parameters and state. Its next step() waits for what is not copied
        yet. With mode="after_update", for optimizers that step inside backward(), each is captured
        right after its own update, where step() has decided one step before to save.

        Of a module: its parameters that no attached optimizer has, frozen ones or averages. Call
        fence() before anything else changes them. A change without a fence that is found fails
        that save with TornCaptureError, and such tensors are copied before save() returns from
        then on; docs/guarantees.md says what is found.
        """
        self._check_usable()
        self._lazy.attach(target, mode)

    def detach(self, target: object | None = None) -> None:
        """Attaches one target, or all of them, no more. Copies first what is not copied yet."""
        self._lazy.detach(target)

    def fence(self) -> None:
        """Returns once nothing that is attached is still to be copied, of devices' memory once the
        streams that are current wait for that: another stream has to wait for them.

        Call it before changing attached tensors otherwise than by an attached optimizer's step:
        an average, clipped weights, load_state_dict(), an optimizer of your own. What needs no
        fence, as JAX's arrays, is copied as well, and no longer held.
        """
        check_process(self._owner)
        self._lazy.fence_all()
        for handle in self._completer.in_flight():
            handle.let_go(waits=not self._lazy.is_on_devices)  # there the streams wait

    def in_flight(self) -> list[SaveHandle]:
        """Handles of the saves that are not durable yet, oldest first."""
        check_process(self._owner)
        return self._completer.in_flight()

    def defer(self, action: Callable[[], object]) -> bool:
        """Calls `action` at the end of the running save(), step() or fence; False if none is."""
        return self._calls.defer(action)

    def wait(self) -> None:
        """Returns once no save is in flight; a failure is in its handle."""
        check_process(self._owner)
        self._lazy.discard_early()
        self._lazy.fence_all()  # who waits may as well copy
        self._completer.join()
        self._engine.wait()

    def close(self) -> None:
        """Waits for what is in flight, then gives the threads and the arena back.

        A save that is still in flight after EXIT_SECONDS_MAX fails, and its threads are left.
        If no save has ever succeeded, the first one's error is raised, unless a wait() has.
        """
        if self._ended or os.getpid() != self._owner:
            return
        self._closed = True  # and not ended, where an interrupt comes now
        self._lazy.detach(None)
        self._completer.join_or_give_up()
        closed(self)
        self._finalizer.detach()
        self._ended = True
        end_engine(self._engine, self._completer, self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except CheckpointError as failure:
            if error is None:
                raise
            # What ended the training matters more, and would be hidden.
            with contextlib.suppress(Exception):
                log.error("close %s: %s", self.path, failure)

    def _check_usable(self) -> None:
        check_process(self._owner)
        if self._closed:
            raise CheckpointError("this checkpointer is closed", code="invalid_argument")

    def _raise_failed(self) -> None:
        self._check_usable()
        error = self._completer.take_unraised() if self._strict_saves else None
        if error is not None:
            raise error
