"""What saves cost the training that goes on beside them, measured between the calls of step()."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import fmean, median

from deepfreeze.handle import SaveHandle
from deepfreeze.interval import Cost
from deepfreeze.save_cost import STEPS_KEPT, Beside, SaveCost, slowdown_of

WARM_UP_STEPS = 2  # left out: compiled, cached and allocated once
QUIET_STEPS_MIN = 5
SAVES_MIN = 3  # one that a pause spoils has no majority
_SAVES_KEPT = 7  # few, so that the estimate follows training
_UNRESTED_MAX = 100  # beyond that, what training takes without saves is not known any more
_STEP_SECONDS_MIN = 1e-9  # a divisor, where a clock stands still


class StepMeter:
    """Sorts the times from one step() to the next by whether a save was beside them.

    A step is quiet, or beside a save: until the step() that finds it durable. What a save blocks
    (inside save(), and in fences) is known exactly, is taken off its steps, and averaged: a budget
    pays for the rare long one too. What is left of the steps beside it is compared with the median
    of the quiet ones: the first by itself, later ones by their median times their number, together
    no more than the time in flight. The median over the last saves is the slow-down. Saves that met
    a pause, for an evaluation say, are left out of it unless all did.

    Left out: the first steps, the first save (it sets up), saves that fail, what a restore
    interrupts. For the training's thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entered: float | None = None  # when the last step() was
        self._saving = 0.0  # when save() was
        self._inside_seconds = 0.0  # in save(), since the last step()
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
        """None until enough was measured."""
        if len(self._saves) < SAVES_MIN or len(self._quiet) < QUIET_STEPS_MIN:
            return None
        return Cost(
            step_seconds=max(median(self._quiet), _STEP_SECONDS_MIN),
            blocked_seconds=fmean(each.blocked_seconds for each in self._saves),
            slowdown_seconds=slowdown_of(self._saves),
        )

    def stepped(self) -> bool:
        """A step() is here, and the next one's time begins; whether one more save was measured."""
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
        """The seconds since the last step() without those in save(); None: left out."""
        now, before, inside = self._clock(), self._entered, self._inside_seconds
        self._entered, self._inside_seconds = now, 0.0
        if before is None:
            return None
        if self._left_out > 0:
            self._left_out -= 1
            return None
        return now - before - inside

    def _step_beside(self, save: Beside, seconds: float | None) -> bool:
        over = save.handle.durable.done()  # asked first: then the status is final
        status = save.handle.status()
        if seconds is None:
            save.counts = False
        else:
            save.add(seconds, status)
        if not over:
            return False
        self._beside = None
        if not save.counts or save.handle.durable.exception() is not None or not self._quiet:
            return False
        self._saves.append(save.cost(status, median(self._quiet)))
        return True

    def armed(self) -> None:
        """The step that has begun is captured early, inside backward."""
        self._armed = True

    def saving(self) -> None:
        """A save() begins."""
        self._saving = self._clock()

    def saved(self, handle: SaveHandle) -> None:
        """It returns."""
        inside = self._clock() - self._saving
        self._inside_seconds += inside
        self._beside = Beside(handle, inside, self._early_step, counts=self._saves_begun > 0)
        self._saves_begun += 1

    def interrupted(self) -> None:
        """Something else happens between two steps: a restore, a save that could not begin."""
        self._left_out = max(self._left_out, 1)
