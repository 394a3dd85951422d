"""The user's rules: when to save, and which checkpoints to keep."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

from deepfreeze.interval.arithmetic import Target
from deepfreeze.saving.handle import SaveHandle


@dataclass(frozen=True)
class Every:
    """When step() saves: at multiples of `steps`, `seconds` after the last save, or by `target`."""

    steps: int | None
    seconds: float | None
    target: Target | None = None


class KeepForm(TypedDict):
    """The engine's own arguments for it."""

    keep_last: int | None
    keep_every: int | None
    keep_best: tuple[str, str, int] | None


@dataclass(frozen=True)
class Keep:
    """Which checkpoints stay once newer ones are durable. Without a rule all stay."""

    last: int | None
    every: int | None
    best: tuple[str, str, int] | None

    def form(self) -> KeepForm:
        """As the engine takes it."""
        return {"keep_last": self.last, "keep_every": self.every, "keep_best": self.best}

    def __str__(self) -> str:
        rules = [
            "" if self.last is None else f"the last {self.last}",
            "" if self.every is None else f"each {self.every}th step",
            "" if self.best is None else "the best {2} by {1} {0}".format(*self.best),
        ]
        return ", ".join(filter(None, rules)) or "all"


def every(
    *,
    steps: int | None = None,
    seconds: float | None = None,
    overhead: float | None = None,
    mtbf: float | None = None,
) -> Every:
    """Saves at each step that is a multiple of `steps`, and whenever `seconds` have passed.

    Instead the interval can be measured. `overhead` is the fraction of training time that saves may
    add, for example 0.02; `mtbf` the mean time between failures in seconds. If a save costs C:

    - `overhead` alone: as often as the budget allows, C / overhead apart;
    - `mtbf` alone: sqrt(2 C mtbf) apart (Young 1974) with the higher terms of Daly (2006), which
      loses least to saves and failures together;
    - both: the longer of the two.

    The interval is in whole steps, at least one, and no save begins while another is in flight. C
    is the time for which a save blocks training, and by which it slows the steps beside it. Call
    step() once per iteration: that is the clock. The first save only sets things up; until three
    more are measured, each 11th call saves, whatever the budget. After a restart it measures anew.
    The interval is logged when it is first chosen and when it changes by more than half;
    str(ckpt.policy) shows it with its reason.

    `overhead` and `mtbf` go with neither `steps` nor `seconds`: a fixed interval would break the
    budget.
    """
    if overhead is not None or mtbf is not None:
        if steps is not None or seconds is not None:
            raise ValueError("every: overhead and mtbf pick the interval: no steps, no seconds")
        return Every(None, None, _target(overhead, mtbf))
    if steps is None and seconds is None:
        raise ValueError("every: give steps, seconds or both; or overhead, mtbf or both")
    if steps is not None and steps < 1:
        raise ValueError(f"every: steps={steps} is less than 1")
    if seconds is not None and not seconds > 0:
        raise ValueError(f"every: seconds={seconds} is not more than 0")
    return Every(steps, seconds)


def _target(overhead: float | None, mtbf: float | None) -> Target:
    if overhead is not None and not 0 < overhead < 1:
        raise ValueError(f"every: overhead={overhead} is not between 0 and 1 (0.02 for 2 %)")
    if mtbf is not None and not 0 < mtbf < math.inf:
        raise ValueError(f"every: mtbf={mtbf} is no number of seconds above 0")
    return Target(overhead, mtbf)


def keep(
    *,
    last: int | None = None,
    every: int | None = None,
    best: tuple[str, str] | tuple[str, str, int] | None = None,
) -> Keep:
    """Keeps the newest `last`, each multiple of `every`, and the `best` (metric, "min" or "max").

    A third member of `best` is the number of best ones to keep.
    """
    if last is not None and last < 1:
        raise ValueError(f"keep: last={last} is less than 1")
    if every is not None and every < 1:
        raise ValueError(f"keep: every={every} is less than 1")
    return Keep(last, every, None if best is None else _best(*best))


def _best(metric: str, better: str, count: int = 1) -> tuple[str, str, int]:
    if better not in ("min", "max"):
        raise ValueError(f'keep: best by {better!r}, which is neither "min" nor "max"')
    if count < 1:
        raise ValueError(f"keep: the best {count} is less than 1")
    return metric, better, count


class SavePolicy:
    """Decides at each step; without an Every, each step is saved."""

    def __init__(self, rule: Every | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rule = rule
        self._clock = clock
        self._last = clock()

    @property
    def has_rule(self) -> bool:
        """Whether the user has chosen when to save."""
        return self._rule is not None

    @property
    def counts_steps_alone(self) -> bool:
        """Whether due() follows from the step alone, so that all ranks decide the same."""
        return self._rule is None or self._rule.seconds is None

    def due(self, step: int) -> bool:
        """Whether `step` is to be saved."""
        if self._rule is None:
            return True
        if self._rule.steps is not None and step % self._rule.steps == 0:
            return True
        return self._rule.seconds is not None and self._clock() - self._last >= self._rule.seconds

    def stepped(self, step: int) -> None:
        """Called at the beginning of each step()."""

    def armed(self) -> None:
        """The capture of the next step will begin before its save()."""

    def saving(self) -> None:
        """Called at the beginning of each save()."""

    def saved(self, handle: SaveHandle | None = None) -> None:
        """Notes that a save has begun: its seconds count from here. None: restored, or failed."""
        self._last = self._clock()

    def interrupted(self) -> None:
        """The time of the step under way must not be measured."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"

    def __str__(self) -> str:
        if self._rule is None:
            return "every step"
        rules = (("steps", self._rule.steps), ("s", self._rule.seconds))
        return " or ".join(f"every {value:g} {unit}" for unit, value in rules if value is not None)
