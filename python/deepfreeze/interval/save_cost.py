"""The cost of one save, from the times of the steps beside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import median

from deepfreeze.saving.handle import SaveHandle, SaveStatus

STEPS_KEPT = 31  # few, because training may get slower; more would be more exact


@dataclass(frozen=True)
class SaveCost:
    """The cost of a save that is durable."""

    blocked_seconds: float  # inside save() and in fences
    slowdown_seconds: float  # by how much the steps beside it were longer; below 0 by chance
    paused: bool  # those steps were longer than any save can make them


def slowdown_of(saves: Collection[SaveCost]) -> float:
    """The median of the saves that no pause spoils; if all are spoilt, of their upper bounds."""
    sound = [each for each in saves if not each.paused]
    return max(0.0, median(each.slowdown_seconds for each in sound or saves))


@dataclass
class Beside:
    """A save in flight, and the steps beside it so far."""

    handle: SaveHandle
    inside_seconds: float  # in save()
    early_step: float | None  # the time of the step before, if the capture began inside it
    counts: bool
    first_step: float | None = None  # most is copied during this one
    later_steps: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_KEPT))
    later_count: int = 0
    fence_seconds: float = 0.0  # the fence time that was subtracted from steps so far

    def add(self, seconds: float, status: SaveStatus) -> None:
        """Adds one more step; its time in fences does not count as slow-down."""
        seconds -= status.fence_seconds - self.fence_seconds
        self.fence_seconds = status.fence_seconds
        if self.first_step is None:
            self.first_step = seconds
            return
        self.later_steps.append(seconds)
        self.later_count += 1

    def cost(self, status: SaveStatus, quiet: float) -> SaveCost:
        """The cost of the save, if steps without a save take `quiet` seconds."""
        slower = self._slower(quiet)
        # At most training stood still while the save was in flight, and while it was captured
        # early.
        most = status.local_seconds + (0 if self.early_step is None else quiet)
        return SaveCost(
            blocked_seconds=self.inside_seconds + status.fence_seconds,
            slowdown_seconds=min(slower, most),
            paused=slower > most + quiet,  # less may be noise
        )

    def _slower(self, quiet: float) -> float:
        one_by_one = (self.early_step, self.first_step)
        slower = sum(seconds - quiet for seconds in one_by_one if seconds is not None)
        if self.later_steps:
            slower += self.later_count * (median(self.later_steps) - quiet)
        return slower
