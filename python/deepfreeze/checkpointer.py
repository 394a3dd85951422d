"""The checkpointer of one run: saves during training, restores a checkpoint that verifies."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

from deepfreeze import _core
from deepfreeze.base.arguments import absolute, absolute_parent, checked_step, floats, strings
from deepfreeze.base.names import KeyFilter
from deepfreeze.describe import CheckpointList, Described, SaveLines
from deepfreeze.errors import CheckpointError
from deepfreeze.frameworks.in_use.adapters import adapters_in_use
from deepfreeze.frameworks.in_use.ranks import declining, ranks_of_job
from deepfreeze.interval.beyond import beyond_process
from deepfreeze.interval.budget import policy_of
from deepfreeze.interval.parity import Parity
from deepfreeze.interval.policy import Every, Keep, SavePolicy
from deepfreeze.interval.tier import Tier
from deepfreeze.metrics.textfile import textfile_of, watched
from deepfreeze.restoring.chosen import Rule, Step, at_step, point_in, recorded_rule
from deepfreeze.restoring.half_restored import HalfRestored
from deepfreeze.restoring.restorer import (
    Restorer,
    loaded,
    newest_good,
    together,
    verified,
)
from deepfreeze.saving.attached import LazyCapture
from deepfreeze.saving.calls import Calls, alone
from deepfreeze.saving.capture import Capture, paused_gc, table_of, walk
from deepfreeze.saving.closing import close_when_dropped, closed, end_engine, opened
from deepfreeze.saving.completer import Completer
from deepfreeze.saving.guards import Watch
from deepfreeze.saving.handle import SaveHandle, check_process
from deepfreeze.saving.tiered import Tiered
from deepfreeze.state.memo import Memo

log = logging.getLogger("deepfreeze")


class Checkpointer(Described, Tiered):
    """Saves and restores the state of one training run, kept in a directory.

    A failed save never stops training: its handle raises the error, `failed_saves` counts it, and
    it is logged. For one thread at a time; handles for any. In a forked child all calls fail.

    Attached tensors may be captured while training goes on. The profile "latency" does that, and
    blocks least per save. "throughput" copies all before save() returns, on all cores, which takes
    the least time in total if training keeps the cores busy (not state beyond `arena_bytes_max`,
    nor early captures). "auto" acts as "latency" while training leaves a core free. A state that
    exceeds `arena_bytes_max` streams through, and its fences wait for the disk.

    A checkpoint whose statistics count NaN or infinities, intended or not, is never the best, and
    does not displace the newest without them.

    If there are several ranks, all open the run, and make the same calls in the same order. State
    that is equal on all is divided among them; state that differs must be RNG, df.per_rank(), a
    shard of a DTensor, or have another name on each. See docs/operations.md for limits and signals.
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
        reuse_unchanged: bool = True,
        prometheus_textfile: str | os.PathLike[str] | None = None,
        ranks: _core.Ranks | Literal["auto"] | None = "auto",
        commit_wait_seconds: float = 600.0,
        audit_saves: int = 100,
        read_only: bool = False,
        tiers: Sequence[Tier] = (),
        bytes_max: str | float | None = None,
        agent: str | os.PathLike[str] | None = None,
        near: Literal["shared", "node"] = "shared",
        link: str = "auto",
        protect: Parity | None = None,
    ) -> None:
        """Opens the run in the directory `path`, which is created if it does not exist.
        every: When step() saves, from df.every(); the default is each step.
        keep: Which checkpoints stay, from df.keep(); the default is all.
        parent: The run and the step that a new run branches from.
        on_busy: A save waits ("block") or is skipped ("skip") if one is in flight, or for room.
        strict_saves: Also raise the error of a failed save from the next call.
        profile: When attached state is captured, "auto", "latency" or "throughput".
        arena_bytes_max: The most memory for that, at least 8 MiB, and as much for other state.
        statistics: Store each tensor's range and its count of NaN and infinities: one more pass.
        reuse_unchanged: Tensors that do not change share a file with earlier checkpoints, by links.
        prometheus_textfile: A name.prom of its own, on a local disk, for the node exporter.
        ranks: "auto" (those of torch.distributed, if several), None (alone), or df.*Ranks().
        commit_wait_seconds: After rank 0, until a save fails that the others have not written.
        audit_saves: Compare all state that ranks share within so many saves; 0: never.
        tiers: Farther places, nearest first, from df.tier(): "durable" is committed on the last.
        bytes_max: The room for checkpoints in `path` while a tier is behind, such as "500GB".
        agent: "auto": a process of its own finishes captured saves if this one is killed.
        near: "node": each node of the job has a `path` of its own. `link`: their interface.
        protect: With it, from df.parity() or df.partner(): checkpoints outlive the loss of nodes.
        read_only: For restore() alone. Otherwise a directory that can't be written is refused.
        """
        self._parent, self.path, self._owner = absolute_parent(parent), absolute(path), os.getpid()
        self._keep, self._tiers = keep or Keep(None, None, None), [tier.path for tier in tiers]
        self._closed = self._ended = self._is_of_parent = False  # the last: restore() tries it
        self._textfile, self.last_restore = textfile_of(self.path, prometheus_textfile), None
        self._ranks = ranks_of_job() if ranks == "auto" else ranks
        adapters_in_use()  # imports their modules now, not in the first save()
        self._engine = _core.Engine(
            os.fspath(self.path), **self._keep.form(), parent=self._parent, on_busy=on_busy,
            profile=profile, arena_bytes_max=arena_bytes_max, statistics=statistics,
            reuse_unchanged=reuse_unchanged, ranks=self._ranks, read_only=read_only,
            **beyond_process(
                tiers, agent, bytes_max, near, link, protect, commit_wait_seconds, audit_saves
            ),
        )  # fmt: skip
        self._declining, self._strict_saves = declining(self._engine, self._ranks), strict_saves
        self._calls, self._memo, self._half_restored = Calls(), Memo(), HalfRestored()
        rank_count = self._ranks.world_size if self._ranks else 1
        self._lazy = LazyCapture(self._engine, self._calls, rank_count)
        self._policy = policy_of(every)
        lines, counters = SaveLines(self.path, self._ranks), watched(self._textfile, self._engine)
        self._completer = Completer(counters, lines.saved)
        self._finalizer = close_when_dropped(self, self._engine, self._completer)
        opened(self)

    @property
    def policy(self) -> SavePolicy:
        """The policy that step() asks; str() of it says when it saves, and why."""
        return self._policy

    @alone()
    def step(
        self,
        step: int,
        state: object,
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> SaveHandle | None:
        """Saves if the policy asks for it (without `every` at each step); else returns None."""
        try:
            step = checked_step(step)
            self._policy.stepped(step)
            due = self._is_due(step)
            handle = self._begin(step, state, metrics, tags) if due else None
        finally:
            self._lazy.discard_early()  # does nothing if a save has used it
        arms = self._lazy.captures_early and self._is_due(step + 1)
        if not due:  # the other ranks make no call now that could tell them
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
        except CheckpointError:  # the other ranks are lost: the save will report it
            return True

    def _arm(self, state: object) -> None:
        try:
            capture, table, watches = self._captured(state)
            self._lazy.arm(capture.owners, table, watches)
            self._policy.armed()
        except CheckpointError as error:  # the save itself will report it
            log.debug("no early capture: %s", error)

    @alone()
    def prewarm(self, state: object) -> None:
        """Does the setup of the first save() of such a state now, so that the save takes no longer.

        Takes and registers the memory, plans the file, claims the run (several nodes do that with
        the first save). Saves nothing. Call it after restore(), once the state has its full size:
        optimizers make theirs in their first step.
        Raises the errors that save() would, and CheckpointError if memory or disk space is refused.
        """
        with self._declining:
            self._raise_failed()
            self._lazy.discard_early()  # it uses the same table
            capture, table, _ = self._captured(state)
        self._engine.prewarm(table, capture.text, self._lazy.streams())
        self._policy.interrupted()

    @alone()
    def save(
        self,
        step: int,
        state: object,
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> SaveHandle | None:
        """Saves `state` as `step`; returns None if the save was skipped.

        Returns once all state that is not attached is captured; attached state follows while
        training runs. A signal handler's save() inside another call is skipped.

        EncodeError, before anything is written, names a value that can't be stored. The handle
        raises later failures, and one for lack of memory.
        """
        return self._begin(step, state, metrics, tags)

    def _begin(
        self,
        step: int,
        state: object,
        metrics: Mapping[str, float] | None,
        tags: Mapping[str, str] | None,
    ) -> SaveHandle | None:
        """Checks the caller's arguments; then a save begins."""
        try:
            with self._declining:
                self._raise_failed()
                step = checked_step(step)
                if self._half_restored.why is not None:  # a mixture is never saved
                    raise self._half_restored.error(step)
                numbers = floats(metrics) if metrics else {}
                texts = strings(tags) if tags else {}
            self._policy.saving()
            return self._hand_over(step, state, numbers, texts)
        finally:
            self._lazy.discard_early()  # does nothing if a save has used it

    def _hand_over(
        self, step: int, state: object, metrics: dict[str, float], tags: dict[str, str]
    ) -> SaveHandle | None:
        """Captures the state, gives it to the engine, and follows the save from there on."""
        try:
            with self._declining:
                capture, table, watches = self._captured(state)
                self._lazy.settle_early(watches)
            # Ctrl-C may arrive as the engine returns. The native handle is then dropped; its
            # destructor stops reading the tensors and fails the save.
            native = self._engine.save(
                step,
                table,
                capture.text,
                metrics,
                tags,
                capture.environment,
                # Device memory is copied later, guarded or not, and is held until then.
                confirm=bool(watches) or self._lazy.is_on_devices,
                streams=self._lazy.streams(),
            )
        except CheckpointError as error:
            if error.code in ("encode", "invalid_argument", "mismatch"):
                raise
            self._policy.saved()
            failed = SaveHandle(step, None)
            self._completer.failed_at_once(failed, error)
            return failed
        finally:
            self._engine.discard_capture()  # does nothing unless the engine was not reached
        if native is None:
            if self._textfile is not None:
                self._textfile.skipped()
            return None
        handle = None
        try:
            # If all is copied already, nothing can be torn: the engine asks for no confirmation.
            late = native.status().guarded_bytes > 0
            window = self._lazy.open_window(capture.owners, watches) if late else None
            handle = SaveHandle(step, native, window)
            self._completer.add(handle)
        except BaseException:
            native = handle = None  # a kept exception would else keep the save alive
            raise
        self._policy.saved(handle)
        return handle

    def _captured(self, state: object) -> tuple[Capture, _core.Table, dict[int, Watch]]:
        with paused_gc():  # from the walk to the table
            capture = walk(state, self._memo, self._ranks.rank if self._ranks else None)
            watches, kept = self._lazy.watch(capture)
            moved = capture.moved() if kept else None
            table = table_of(capture.own_entries(), self._memo, moved)
            return capture, table, watches

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

        `step` chooses another one: its number, or "best", "best:METRIC", "best:METRIC:min|max" as
        in best(); "latest" is the newest, too. Returns None if nothing was ever committed; a new
        branch starts from its parent's step. A checkpoint that does not verify is passed over with
        a warning, unless `step` chooses it; `last_restore` tells. Nothing is claimed before the
        next save(), so a run that another process writes can be restored from.

        `keys` are shell patterns on names; values that they don't choose stay unchanged. With
        strict, missing names, unexpected names and values of another meaning are a MismatchError,
        raised before anything is modified. Without it such values stay unchanged, and
        `last_restore` lists them with the reasons.

        Containers keep their identity. A container with only plain values in it, for example a
        history of metrics, is data: it gets the saved content, whatever its keys. Names are
        compared at the top level and in every container with tensors or objects.
        """
        self.fence()  # the restore writes in place
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
        if self._half_restored.why is not None:
            self._half_restored.restored(plan, whole=keys is None and strict)
        self._policy.saved()
        self._lazy.expect()
        self.last_restore = restorer.report(info, plan, passed_over)
        return info.step

    def _candidates(self, step: Step) -> list[_core.CheckpointInfo]:
        """The checkpoints for restore() to try, in order; the parent's if the run has none yet."""
        infos = self._engine.candidates()
        self._is_of_parent = not infos and self._parent is not None
        with together(self._engine, "the checkpoint to restore") as subject:
            if self._is_of_parent and self._parent is not None:
                infos = point_in(*self._parent)
            infos = at_step(infos, step, self._best_rule)
            subject += [f"step {info.step}, attempt {info.attempt_id}" for info in infos[:1]]
        return infos

    def _best_rule(self) -> Rule | None:
        """The metric and mode of the best checkpoint: ours, or those of the run's last writer."""
        return self._keep.best or recorded_rule(self.path)()

    def continue_from(self, info: _core.CheckpointInfo) -> None:
        """Treats `info`, read by other means, as restored: the next save continues from it."""
        self._check_usable()
        self._engine.continue_from(info)

    def load(self, step: Step = None, keys: Sequence[str] | None = None) -> Any:
        """The values of a checkpoint: tensors if torch is imported, else NumPy arrays.

        Without `step`, those of the newest that verifies. `step` and `keys` as in restore(); in a
        list, None replaces values that the keys don't choose.
        """
        look = partial(self._listed, step)
        return loaded(look, step, KeyFilter(keys), self.path, shows=self._is_first)

    def _listed(self, step: Step) -> list[_core.CheckpointInfo]:
        return at_step(self.checkpoints(), step, self._best_rule)

    def checkpoints(self) -> CheckpointList:
        """All committed checkpoints, newest first, with their metrics and tags.

        A checkpoint whose commit record no longer verifies is listed with its `fault`.
        """
        check_process(self._owner)
        return CheckpointList(_core.list_checkpoints(os.fspath(self.path), self._tiers))

    def steps(self) -> list[int]:
        """The committed steps of the current line, in order."""
        return sorted({info.step for info in self._sound() if not info.abandoned})

    def latest(self) -> int | None:
        """The newest committed step."""
        infos = self._sound()
        return infos[0].step if infos else None

    def best(self, metric: str | None = None, mode: str | None = None) -> int | None:
        """The best step of the current line by a metric; None if nothing is committed.

        Without arguments, by the rule of `keep`, or else of the run's last writer. `mode`, "min" or
        "max", is needed for a metric that no rule names, unless its name ends in "loss". A state
        known to hold NaN or infinities is never the best. If several are equal, the newest is.
        """
        infos = self.checkpoints()
        return _core.best_of(infos, metric, mode, self._best_rule()).step if infos else None

    def _sound(self) -> list[_core.CheckpointInfo]:
        return [info for info in self.checkpoints() if not info.fault]

    def verify(self, step: Step = None) -> list[_core.Fault]:
        """Reads and checks every byte of a step, or of the newest; an empty list means good."""
        return verified(partial(self._listed, step), step, self.path, shows=self._is_first)

    def attach(self, target: object, mode: Literal["window", "after_update"] = "window") -> None:
        """Has the tensors of an optimizer or module captured after save() has returned.

        For an optimizer these are its parameters and state. Its next step() waits for tensors that
        are not copied yet. With mode="after_update", for optimizers that step inside backward(),
        each is captured right after its own update, if step() decided one step before to save.

        For a module they are the parameters that no attached optimizer has, for example frozen ones
        or averages. Call fence() before anything else changes them. If a change without a fence is
        found, that save fails with TornCaptureError, and from then on such tensors are copied
        before save() returns; docs/guarantees.md says which changes are found.
        """
        self._check_usable()
        self._lazy.attach(target, mode)

    def detach(self, target: object | None = None) -> None:
        """Stops guarding one target, or all. First copies tensors that are not copied yet."""
        self._lazy.detach(target)

    def fence(self) -> None:
        """Blocks until every attached host tensor is copied. For tensors on devices it makes the
        current streams wait for the copies instead; any other stream has to wait for those.

        Call it before changing attached tensors otherwise than by an attached optimizer's step, for
        example for an average, clipped weights, load_state_dict() or your own optimizer. Arrays
        that need no fence, as JAX's, are copied too, and no longer held.
        """
        check_process(self._owner)
        self._lazy.fence_all()
        for handle in self._completer.in_flight():
            handle.let_go(waits=not self._lazy.is_on_devices)  # on devices the streams wait

    def in_flight(self) -> list[SaveHandle]:
        """Handles of the saves that are not durable yet, oldest first."""
        check_process(self._owner)
        return self._completer.in_flight()

    def defer(self, action: Callable[[], object]) -> bool:
        """Calls `action` at the end of the running save(), step() or fence; False if none is."""
        return self._calls.defer(action)

    def wait(self) -> None:
        """Returns once no save is in flight; handles hold the failures."""
        check_process(self._owner)
        self._lazy.discard_early()
        self._lazy.fence_all()  # the waiting thread may as well copy
        self._completer.join()
        self._engine.wait()

    def close(self) -> None:
        """Waits for saves in flight, then gives the threads and the arena back.

        A save that is still in flight after EXIT_SECONDS_MAX fails, and its threads are left. If no
        save has ever succeeded, raises the first one's error, unless a wait() has done so.
        """
        if self._ended or os.getpid() != self._owner:
            return
        self._closed = True  # but not ended, if an interrupt comes now
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
            # The error that ended the training matters more, and would be hidden.
            with contextlib.suppress(Exception):
                log.error("close %s: %s", self.path, failure)

    def _check_usable(self) -> None:
        check_process(self._owner)
        if self._closed:
            raise CheckpointError("this checkpointer is closed", code="invalid_argument")

    def _raise_failed(self) -> None:
        error = self._completer.take_unraised() if self._strict_saves else None
        if error is not None:
            raise error
