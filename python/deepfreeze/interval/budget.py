"""The policy that chooses its own interval, from the measured cost of saves."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

from deepfreeze.interval.arithmetic import Choice, Target, choose
from deepfreeze.interval.policy import Every, SavePolicy
from deepfreeze.interval.step_meter import SAVES_MIN, StepMeter
from deepfreeze.saving.handle import SaveHandle

log = logging.getLogger("deepfreeze")

START_STEPS = 11  # prime: evaluations come every 10 or 100 steps, and must not meet each save
_LOGGED_FACTOR = 1.5


class BudgetPolicy(SavePolicy):
    """Saves at an interval that it measures; it counts calls of step(), not their numbers.

    It never saves while the save before is in flight: such a save would stall for the disk, and
    the cost would then depend on the interval. With several ranks rank 0 decides for all, because
    each measures other times.
    """

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(None, clock)
        self.choice: Choice | None = None  # None until enough was measured
        self._target = target
        self._meter = StepMeter(clock)
        self._step = -1  # the newest
        self._calls = 0  # of step(), since the last save
        self._steps_logged: int | None = None

    def stepped(self, step: int) -> None:
        self._step = step
        self._calls += 1
        if self._meter.stepped():
            self._choose()

    @property
    def has_rule(self) -> bool:
        return True

    @property
    def counts_steps_alone(self) -> bool:
        return False

    def due(self, step: int) -> bool:
        interval = START_STEPS if self.choice is None else self.choice.steps
        if self._meter.needs_quiet:
            return False
        if step != self._step:  # asked one step before, for an early capture
            return self._calls + 1 >= interval and not self._meter.in_flight
        return self._calls >= interval and not self._meter.in_flight

    def armed(self) -> None:
        self._meter.armed()

    def saving(self) -> None:
        self._meter.saving()

    def interrupted(self) -> None:
        self._meter.interrupted()

    def saved(self, handle: SaveHandle | None = None) -> None:
        self._calls = 0
        if handle is None:
            self._meter.interrupted()
        else:
            self._meter.saved(handle)

    def _choose(self) -> None:
        cost = self._meter.cost()
        if cost is None:
            return
        self.choice = choose(cost, self._target)
        steps, logged = self.choice.steps, self._steps_logged
        if logged is None or max(steps, logged) > _LOGGED_FACTOR * min(steps, logged):
            self._steps_logged = steps
            with contextlib.suppress(Exception):  # a handler that raises must not end training
                log.info("save %s", self)

    def __str__(self) -> str:
        if self.choice is not None:
            return str(self.choice)
        return (
            f"every {START_STEPS} steps, until {SAVES_MIN} saves after the first are measured "
            f"for {self._target}"
        )


def policy_of(rule: Every | None, clock: Callable[[], float] = time.monotonic) -> SavePolicy:
    """The policy of a checkpointer with this `every`."""
    if rule is None or rule.target is None:
        return SavePolicy(rule, clock)
    return BudgetPolicy(rule.target, clock)
