"""Compares two runs, step by step and entry by entry. Knows no framework."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lab.programs import restart_job as words
from lab.programs.restart_protocol import COMPONENTS, LOSS, Array, component

ROUNDING_MAX = 1e-5  # of the greatest value of an array: what another order of sums gives

Digests = Mapping[str, str]


@dataclass
class Record:
    """What one process has told, until it ended or was killed."""

    steps: dict[int, Digests] = field(default_factory=dict)
    restored_step: int | None = None
    restored: Digests = field(default_factory=dict)
    last: Mapping[str, Array] = field(default_factory=dict)  # the state after the last step
    killed: bool = False
    error: str = ""


@dataclass(frozen=True)
class Found:
    verdict: str
    first_step: int | None = None
    first_entry: str = ""
    missing: tuple[str, ...] = ()
    restored_step: int | None = None
    learns_otherwise: int | None = None  # from which step on: its model or its loss differs
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "missing": list(self.missing)}


def first_difference(reference: Record, other: Record) -> tuple[int, str] | None:
    for step in sorted(other.steps):
        entries = different(reference.steps[step], other.steps[step])
        if entries:
            return step, entries[0]
    return None


def different(one: Digests, other: Digests) -> list[str]:
    """In the order of the first; what only the other has comes last."""
    names = [*one, *(name for name in other if name not in one)]
    return [name for name in names if one.get(name) != other.get(name)]


def baseline(reference: Record, again: Record) -> Found:
    """Two undisturbed runs: what differs between them is no writer's fault."""
    for record in (reference, again):
        if len(record.steps) != words.STEPS:
            return Found(words.FAILED, reason=record.error or "it ended before the last step")
    found = first_difference(reference, again)
    return Found(words.NONDETERMINISTIC, *found) if found else Found(words.BIT_IDENTICAL)


def restart(reference: Record, crashed: Record, resumed: Record) -> Found:
    """What was saved until the kill, and trained after it, beside a run that never stopped."""
    if not crashed.killed:
        return Found(words.FAILED, reason=f"before the kill: {crashed.error or 'it ended'}")
    disturbed = first_difference(reference, crashed)
    if disturbed:
        return Found(
            words.DIVERGED, *disturbed, reason="before the kill: the saves changed the training"
        )
    step = resumed.restored_step
    if step is None:
        return Found(words.FAILED, reason=f"restore: {resumed.error or 'it ended'}")
    missing = missing_parts(reference, resumed, step)
    if words.STEPS not in resumed.steps:
        reason = f"after the restore of step {step}: {resumed.error or 'it ended'}"
        return Found(words.FAILED, missing=missing, restored_step=step, reason=reason)
    found = first_difference(reference, resumed)
    if found is None:
        return Found(words.BIT_IDENTICAL, missing=missing, restored_step=step)
    verdict = words.ULP_CLOSE if close(reference, resumed) else words.DIVERGED
    return Found(verdict, *found, missing, step, learns_otherwise(reference, resumed))


def learns_otherwise(reference: Record, resumed: Record) -> int | None:
    for step in sorted(resumed.steps):
        found = map(component, different(reference.steps[step], resumed.steps[step]))
        if {words.MODEL, LOSS} & set(found):
            return step
    return None


def missing_parts(reference: Record, resumed: Record, step: int) -> tuple[str, ...]:
    """The components that did not come back: compared before anything is trained.

    Of the place in the data it shows in the next batch.
    """
    batch = f"{words.DATA}/batch"
    known = reference.steps.get(step, {})
    expected = {name: digest for name, digest in known.items() if name not in (batch, LOSS)}
    found = {component(name) for name in different(expected, resumed.restored)}
    after, now = reference.steps.get(step + 1, {}), resumed.steps.get(step + 1, {})
    if now and after.get(batch) != now.get(batch):
        found.add(words.DATA)
    return tuple(name for name in reversed(COMPONENTS) if name in found)


def close(reference: Record, resumed: Record) -> bool:
    """Whether the last states differ by rounding alone; numbers and generators must be equal."""
    if set(reference.last) != set(resumed.last):
        return False
    return all(near(one, resumed.last[name]) for name, one in reference.last.items())


def near(one: Array, other: Array) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    scale = float(np.max(np.abs(one), initial=0.0))
    return bool(np.all(np.abs(one - other) <= ROUNDING_MAX * scale))
