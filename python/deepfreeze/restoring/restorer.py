"""Restoring and loading one checkpoint, or the newest that verifies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from deepfreeze import _core
from deepfreeze.base.names import KeyFilter, shown
from deepfreeze.base.progress import human_bytes, watched
from deepfreeze.errors import (
    GONE,
    CheckpointError,
    CorruptError,
    IncompleteError,
    MismatchError,
    code_of,
    message_of,
)
from deepfreeze.frameworks.in_use.adapters import adapters_in_use, environment_of
from deepfreeze.restoring.chosen import Step, is_newest, may_change
from deepfreeze.restoring.plan import Plan
from deepfreeze.restoring.restore_plan import RestorePlan
from deepfreeze.saving.capture import paused_gc
from deepfreeze.saving.completer import named_divergences
from deepfreeze.state.tree import loads
from deepfreeze.state.tree_parts import Merged, pruned

log = logging.getLogger("deepfreeze")
T = TypeVar("T")

_LISTS_MAX = 100  # the same as the core's kListsMax
_NAMES_SHOWN_MAX = 8  # in a line of the log


@dataclass
class RestoreReport:
    """The result of a restore."""

    step: int
    generation: int
    fell_back_from: list[tuple[int, str]] = field(default_factory=list)  # step and reason
    missing: list[str] = field(default_factory=list)  # live, but not in the checkpoint
    unexpected: list[str] = field(default_factory=list)  # in the checkpoint, but not live
    # In both, but of another shape, dtype or kind, with the reason. The live value of this name
    # stays unchanged, and so does the state that an optimizer has for it.
    mismatched: dict[str, str] = field(default_factory=dict)
    left_alone: list[str] = field(default_factory=list)  # per rank; this rank was not in the save
    verified: bool = True
    path: str = ""  # of the checkpoint, on the nearest tier that has it
    # The checkpoint's directory that each file was read from, and copies that did not verify, with
    # the cause; the bytes then came from the next tier, and the copy is being replaced.
    tiers: dict[str, str] = field(default_factory=dict)
    mended: dict[str, str] = field(default_factory=dict)
    bytes: int = 0  # that this process has read
    seconds: float = 0.0  # in total, including checkpoints that were passed over


def newest_good(
    listed: Callable[[], Iterable[_core.CheckpointInfo]],
    attempt: Callable[[_core.CheckpointInfo], T],
    *,
    step: Step = None,
) -> tuple[_core.CheckpointInfo, T, list[tuple[int, str]]] | None:
    """The result of `attempt` for the first checkpoint that verifies, and those passed over.

    Returns None if none is listed. If a listed one was deleted meanwhile, they are listed anew. If
    `step` names the listed one, no other replaces it.
    """
    search = _Search(attempt, may_fall_back=is_newest(step))
    return list_anew_while_gone(lambda: search.through(listed()), wanted=may_change(step))


def list_anew_while_gone(read: Callable[[], T], *, wanted: bool) -> T:
    """The result of `read`, which lists checkpoints and reads one of them.

    If that one was deleted meanwhile, and `wanted` is set, reads again: the checkpoint that allowed
    the deletion may be newer than the list.
    """
    for _ in range(_LISTS_MAX):
        try:
            return read()
        except CheckpointError as error:
            if error.code != GONE or not wanted:
                raise
            gone = error
    raise gone


class _Search(Generic[T]):
    """A search for one checkpoint that verifies, through as many lists as it takes."""

    def __init__(self, attempt: Callable[[_core.CheckpointInfo], T], *, may_fall_back: bool):
        self._attempt = attempt
        self._may_fall_back = may_fall_back
        self._passed_over: dict[str, tuple[int, str]] = {}  # by attempt id
        self._gone: set[str] = set()
        self._modified = False

    def through(
        self, infos: Iterable[_core.CheckpointInfo]
    ) -> tuple[_core.CheckpointInfo, T, list[tuple[int, str]]] | None:
        for info in infos:
            if info.attempt_id in self._passed_over:
                continue
            try:
                return info, self._attempt(info), list(self._passed_over.values())
            except CheckpointError as error:
                self._modified = error.state_modified = self._modified or error.state_modified
                if not self._may_fall_back or not self._is_fault(error, info.attempt_id):
                    raise
                log.warning("step %d can't be restored, trying an older one: %s", info.step, error)
                self._passed_over[info.attempt_id] = (info.step, str(error))
        if not self._passed_over:
            return None
        reasons = "; ".join(f"step {step}: {why}" for step, why in self._passed_over.values())
        raise CorruptError(f"no checkpoint verifies: {reasons}", state_modified=self._modified)

    def _is_fault(self, error: CheckpointError, attempt_id: str) -> bool:
        """Whether it is damaged; one that is listed again though it was gone lacks files."""
        if error.code != GONE:
            return isinstance(error, (CorruptError, IncompleteError))
        is_listed_again = attempt_id in self._gone
        self._gone.add(attempt_id)
        return is_listed_again


class Restorer:
    """Fills one live state, from as many checkpoints as it takes."""

    def __init__(
        self,
        state: object,
        keys: KeyFilter,
        engine: _core.Engine,
        ranks: _core.Ranks | None,
        *,
        strict: bool,
        verify: bool,
    ) -> None:
        self._state = state
        self._keys = keys
        self._engine = engine
        self._ranks = ranks
        self._rank = ranks.rank if ranks else 0
        self._began = time.monotonic()
        self._tiers: dict[str, str] = {}  # of the report
        self._mended: dict[str, str] = {}
        self._strict = strict
        self._verify = verify
        self._dirty: set[int] = set()  # addresses that a failed attempt may have written
        self.touched: set[str] = set()  # the names of these, and of objects and plain values
        self.modified = False

    def restore(self, info: _core.CheckpointInfo) -> RestorePlan:
        """Fills the state from one checkpoint; nothing is modified before everything matches.

        Each of the two parts succeeds on all ranks, or on none.
        """
        plan: RestorePlan | None = None
        try:
            with together(self._engine, f"reading attempt {info.attempt_id}"):
                with paused_gc():
                    checkpoint = self._engine.open_checkpoint(info)
                    plan = self._plan(checkpoint)
                    self._match(checkpoint, plan)
                    if plan.missing and checkpoint.info.world_size > 1:
                        plan = self._plan(checkpoint)
                        self._match(checkpoint, plan, of_all=True)
                    plan.check()
                    self._check_covers(plan)
                plan.read(verify=self._verify)
                self._look_at_tiers(checkpoint)
            with together(self._engine, f"applying attempt {info.attempt_id}"):
                _put_in_place(plan)
        except BaseException as error:
            try:
                if plan is not None:
                    plan.take_back()
            except BaseException:
                self.modified = True
                raise
            finally:
                self._note(plan)
            if isinstance(error, CheckpointError):
                error.state_modified = self.modified
            raise
        finally:
            if plan is not None:
                plan.release()
        return plan

    def _look_at_tiers(self, checkpoint: _core.OpenCheckpoint) -> None:
        """Notes the tier that each file came from, and has bad copies replaced."""
        self._tiers = checkpoint.sources()
        mended = checkpoint.mended()
        self._mended = {f"{path}/{file}": cause for file, path, cause in mended}
        for place, cause in self._mended.items():
            log.warning("%s does not verify, and was read from another tier: %s", place, cause)
        if mended:
            self._engine.heal(checkpoint.info, checkpoint)

    def report(
        self, info: _core.CheckpointInfo, plan: RestorePlan, passed_over: list[tuple[int, str]]
    ) -> RestoreReport:
        """The report of a successful restore; warns if the resumed run can't be identical."""
        warn_of_other_ranks(info, self._ranks, plan.left_alone)
        warn_of_other_environment(info, environment_of(plan.adapters))
        warn_of_values(info)
        warn_of_replicas(info)
        warn_of_rest(info, plan)
        report = RestoreReport(
            step=info.step,
            generation=info.generation,
            fell_back_from=passed_over,
            missing=plan.missing,
            unexpected=plan.unexpected,
            mismatched=plan.mismatched,
            left_alone=plan.left_alone,
            verified=self._verify,
            path=info.path,
            tiers=self._tiers,
            mended=self._mended,
            bytes=plan.bytes,
            seconds=time.monotonic() - self._began,
        )
        if self._rank == 0:
            tell_restored(report)
        return report

    def _plan(self, checkpoint: _core.OpenCheckpoint) -> RestorePlan:
        plan = RestorePlan(
            checkpoint,
            self._keys,
            adapters_in_use(),
            state=self._state,
            strict=self._strict,
            is_new_rank=self._rank >= checkpoint.info.world_size,
        )
        plan.label = f"restore step {checkpoint.info.step}" if self._rank == 0 else None
        return plan

    def _note(self, plan: RestorePlan | None) -> None:
        if plan is not None and plan.modifying:
            self.modified = True
            self._dirty |= plan.addresses
            self.touched |= plan.touched

    def _match(
        self, checkpoint: _core.OpenCheckpoint, plan: RestorePlan, *, of_all: bool = False
    ) -> None:
        try:
            if of_all:
                merged = tree_of_all(checkpoint, self._rank)
                plan.optional = merged.added
                tree = merged.tree
            else:
                tree = _tree_of(checkpoint, self._rank)
            plan.match_state(tree)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as cause:
            # The tree verified, so it is not damaged, and an older checkpoint would be no better.
            raise CheckpointError(
                f"the state tree of step {checkpoint.info.step} can't be understood: {cause!r}",
                code="unsupported",
            ) from cause

    def _check_covers(self, plan: Plan) -> None:
        if self._dirty - plan.addresses:
            raise CorruptError("it lacks tensors that a newer, corrupt checkpoint has overwritten")


def _put_in_place(plan: RestorePlan) -> None:
    """Fails with a code that allows no fallback: an older checkpoint would make a mixture."""
    try:
        plan.put_in_place()
    except MismatchError:
        raise
    except CheckpointError as cause:
        raise CheckpointError(str(cause), code="unsupported") from cause


def verified(
    listed: Callable[[], list[_core.CheckpointInfo]], step: Step, run: Path, *, shows: bool
) -> list[_core.Fault]:
    """The faults of the checkpoint that `step` names, or of the newest; `shows`: with progress."""

    def read() -> list[_core.Fault]:
        infos = listed()
        if not infos:
            raise CheckpointError(f"{run}: no checkpoint to verify", code="not_found")
        info = infos[0]
        with watched(f"verify step {info.step}" if shows else None, info.bytes) as counter:
            return _core.verify_checkpoint(info, *counter)

    return list_anew_while_gone(read, wanted=may_change(step))


def loaded(
    listed: Callable[[], list[_core.CheckpointInfo]],
    step: Step,
    keys: KeyFilter,
    run: Path,
    *,
    shows: bool,
) -> Any:
    """The values of the checkpoint that `step` names, or of the newest that verifies."""
    found = newest_good(listed, lambda info: load_tree(info, keys, shows=shows), step=step)
    if found is None:
        raise CheckpointError(f"{run}: no checkpoint to load", code="not_found")
    return found[1]


def load_tree(info: _core.CheckpointInfo, keys: KeyFilter, *, shows: bool = False) -> Any:
    """The values of one checkpoint; `shows`: with progress."""
    checkpoint = _core.open_checkpoint(info)
    plan = Plan(checkpoint, keys, adapters_in_use(), state=None, strict=True)
    plan.label = f"load step {info.step}" if shows else None
    try:
        make = plan.fresh(pruned(tree_of_all(checkpoint).tree, "", keys), "")
        plan.read(verify=True)
        return make()
    finally:
        plan.release()


def _text_of(checkpoint: _core.OpenCheckpoint, rank: int) -> str:
    text = checkpoint.objects(rank if rank < checkpoint.info.world_size else 0)
    if not text:
        raise CheckpointError(
            f"step {checkpoint.info.step} holds no state tree: it was not saved from Python",
            code="unsupported",
        )
    return text


def _tree_of(checkpoint: _core.OpenCheckpoint, rank: int) -> Any:
    """The state tree that the rank saved; rank 0's if that rank did not exist."""
    return loads(_text_of(checkpoint, rank))


def tree_of_all(checkpoint: _core.OpenCheckpoint, rank: int = 0) -> Merged:
    """That tree, and the names that only other ranks saved: they may be this rank's now."""
    own = _text_of(checkpoint, rank)
    texts = dict.fromkeys(map(checkpoint.objects, range(checkpoint.info.world_size)))
    return Merged(loads(own), [loads(text) for text in texts if text and text != own])


@contextmanager
def together(engine: _core.Engine, subject: str) -> Iterator[list[str]]:
    """Makes the block succeed on all ranks, or raise the same error on all.

    The subject, and entries added to the list, must be the same on all ranks; MismatchError
    otherwise.
    """
    subjects = [subject]
    try:
        yield subjects
    except BaseException as error:
        try:
            engine.agree(subject, code_of(error), message_of(error))
        except CheckpointError as agreed:
            if str(agreed) == str(error) or not isinstance(error, Exception):
                raise error from None  # alone, or interrupted
            raise agreed from error
        raise
    engine.agree(": ".join(subjects))


def tell_restored(report: RestoreReport) -> None:
    """Logs one line at INFO: the source, the speed, and whether it was verified."""
    if not log.isEnabledFor(logging.INFO):
        return
    log.info(
        "restored step %d from %s: %s in %.2f s (%s/s), %s",
        report.step,
        report.path,
        human_bytes(report.bytes),
        report.seconds,
        human_bytes(int(report.bytes / max(report.seconds, 1e-9))),
        "every block verified" if report.verified else "not verified, as verify=False asked",
    )


def warn_of_other_ranks(
    info: _core.CheckpointInfo, ranks: _core.Ranks | None, left_alone: list[str]
) -> None:
    """Warns once if state that each rank has for itself was saved by another number of ranks."""
    here = ranks.world_size if ranks else 1
    if here == info.world_size or (ranks and ranks.rank and not left_alone):
        return
    log.warning(
        "step %d was saved by %d ranks, %d are here: state that each rank has for itself "
        "(generators, loaders) is restored on the ranks of the same number%s; the resumed run "
        "can't be bit-identical",
        info.step,
        info.world_size,
        here,
        f", and left as it is here: {', '.join(map(shown, left_alone[:8]))}" if left_alone else "",
    )


def warn_of_other_environment(info: _core.CheckpointInfo, here: dict[str, str]) -> None:
    """Warns once if versions or the number of threads differ from those of the save."""
    there = info.environment
    changed = [
        f"{name} {there[name]} -> {here[name]}"
        for name in sorted(here.keys() & there.keys())
        if here[name] != there[name]
    ]
    if changed:
        log.warning(
            "step %d was saved elsewhere (%s): the resumed run can't be bit-identical",
            info.step,
            ", ".join(changed),
        )


def warn_of_values(info: _core.CheckpointInfo) -> None:
    """Warns once if the checkpoint is known to hold NaN or infinities."""
    if info.non_finite:
        log.warning(
            "step %d holds %d values that are NaN or infinite; restore(step=) takes an older one",
            info.step,
            info.non_finite,
        )


def warn_of_rest(info: _core.CheckpointInfo, plan: RestorePlan) -> None:
    """Warns once if a restore that is not strict has not restored everything."""
    if not plan.left_out:
        return
    stays = [*plan.mismatched, *plan.missing]
    log.warning(
        "step %d is restored in part: %d live names stay as they were%s, %d stored ones are not "
        "used%s; last_restore has all, with the reasons",
        info.step,
        len(stays),
        _some_of(stays),
        len(plan.unexpected),
        _some_of(plan.unexpected),
    )


def _some_of(names: list[str]) -> str:
    more = ", ..." if len(names) > _NAMES_SHOWN_MAX else ""
    return f" ({', '.join(names[:_NAMES_SHOWN_MAX])}{more})" if names else ""


def warn_of_replicas(info: _core.CheckpointInfo) -> None:
    """Warns once if the ranks that saved it differed in state that should be equal."""
    if info.diverged:
        log.warning(
            "step %d was not the same on all ranks that saved it: %s",
            info.step,
            named_divergences(info.diverged),
        )
