"""Measures how saves slow down the training beside them, between the calls of step()."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import fmean, median

from deepfreeze.interval.arithmetic import Cost
from deepfreeze.interval.save_cost import STEPS_KEPT, Beside, SaveCost, slowdown_of
from deepfreeze.saving.handle import SaveHandle

WARM_UP_STEPS = 2  # left out: compiling, caching and allocating happen once
QUIET_STEPS_MIN = 5
SAVES_MIN = 3  # one save that a pause spoils is no majority
_SAVES_KEPT = 7  # few, so that the estimate follows training
_UNRESTED_MAX = 100  # after more steps the time of a step without saves is no longer known
_STEP_SECONDS_MIN = 1e-9  # a divisor, if the clock stands still


class StepMeter:
    """Sorts the times from one step() to the next by whether a save was beside them.

    A step is quiet, or beside a save: until the step() that finds the save durable. The time for
    which a save blocks (inside save(), and in fences) is known exactly; it is subtracted from its
    steps, and averaged, since a budget pays for the rare long one too. The rest of the steps beside
    it is compared with the median of the quiet ones: the first step by itself, later ones by their
    median times their number, together no more than the time in flight. The median over the last
    saves is the slow-down. Saves that met a pause, for example an evaluation, are left out of it
    unless all did.

    Not measured: the first steps, the first save (it sets things up), saves that fail, and steps
    that a restore interrupts. For the training's thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entered: float | None = None  # the time of the last step()
        self._saving = 0.0  # the time of the last save()
        self._inside_seconds = 0.0  # spent in save(), since the last step()
        self._left_out = WARM_UP_STEPS
        self._armed = False
        self._early_step: float | None = None
        self._beside: Beside | None = None
        self._saves_begun = 0
        self._quiet: deque[float] = deque(maxlen=STEPS_KEPT)
        self._quiet_run = 0  # quiet steps in a row
        self._unrested = 0  # steps since the last QUIET_STEPS_MIN of them in a row
        self._saves: deque[SaveCost] = deque(maxlen=_SAVES_KEPT)

    @property
    def in_flight(self) -> bool:
        """Whether the newest save was not yet durable at the last step()."""
        return self._beside is not None

    @property
    def needs_quiet(self) -> bool:
        """Whether saves have followed each other for so long that steps without one are due."""
        return self._unrested >= _UNRESTED_MAX

    def cost(self) -> Cost | None:
        """The measured cost; None until enough was measured."""
        if len(self._saves) < SAVES_MIN or len(self._quiet) < QUIET_STEPS_MIN:
            return None
        return Cost(
            step_seconds=max(median(self._quiet), _STEP_SECONDS_MIN),
            blocked_seconds=fmean(each.blocked_seconds for each in self._saves),
            slowdown_seconds=slowdown_of(self._saves),
        )

    def stepped(self) -> bool:
        """Ends the time of one step and begins the next; whether one more save was measured."""
        seconds = self._lap()
        armed, self._armed = self._armed, False
        self._early_step = None
        self._rested(seconds is not None and self._beside is None and not armed)
        if self._beside is not None:
            return self._step_beside(self._beside, seconds)
        if seconds is None:
            return False
        if armed:
            self._early_step = seconds
        else:
            self._quiet.append(seconds)
        return False

    def _rested(self, quiet: bool) -> None:
        self._quiet_run = self._quiet_run + 1 if quiet else 0
        self._unrested = 0 if self._quiet_run >= QUIET_STEPS_MIN else self._unrested + 1

    def _lap(self) -> float | None:
        """The seconds since the last step() without those in save(); None if it is not measured."""
        now, before, inside = self._clock(), self._entered, self._inside_seconds
        self._entered, self._inside_seconds = now, 0.0
        if before is None:
            return None
        if self._left_out > 0:
            self._left_out -= 1
            return None
        return now - before - inside

    def _step_beside(self, save: Beside, seconds: float | None) -> bool:
        over = save.handle.local.done()  # asked first: then the status is final
        status = save.handle.status()
        if seconds is None:
            save.counts = False
        else:
            save.add(seconds, status)
        if not over:
            return False
        self._beside = None
        if not save.counts or save.handle.local.exception() is not None or not self._quiet:
            return False
        self._saves.append(save.cost(status, median(self._quiet)))
        return True

    def armed(self) -> None:
        """The step that has begun is captured early, inside backward."""
        self._armed = True

    def saving(self) -> None:
        """Called at the beginning of each save()."""
        self._saving = self._clock()

    def saved(self, handle: SaveHandle) -> None:
        """Called at the end of a save()."""
        inside = self._clock() - self._saving
        self._inside_seconds += inside
        self._beside = Beside(handle, inside, self._early_step, counts=self._saves_begun > 0)
        self._saves_begun += 1

    def interrupted(self) -> None:
        """Something else happens between two steps: a restore, or a save that could not begin."""
        self._left_out = max(self._left_out, 1)
