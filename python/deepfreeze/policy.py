"""When to save and what to keep."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Every:
    """When step() saves: at multiples of `steps`, or `seconds` after the last save."""

    steps: int | None
    seconds: float | None


@dataclass(frozen=True)
class Keep:
    """Which checkpoints stay once newer ones are durable. No rule set: all of them."""

    last: int | None
    every: int | None
    best: tuple[str, str, int] | None


def every(*, steps: int | None = None, seconds: float | None = None) -> Every:
    """Save at each step that is a multiple of `steps`, and whenever `seconds` have passed."""
    if steps is None and seconds is None:
        raise ValueError("every: give steps, seconds or both")
    if steps is not None and steps < 1:
        raise ValueError(f"every: steps={steps} is less than 1")
    if seconds is not None and not seconds > 0:
        raise ValueError(f"every: seconds={seconds} is not more than 0")
    return Every(steps, seconds)


def keep(
    *,
    last: int | None = None,
    every: int | None = None,
    best: tuple[str, str] | tuple[str, str, int] | None = None,
) -> Keep:
    """Keep the newest `last`, each multiple of `every`, and the `best` (metric, "min" or "max").

    A third member of `best` says how many of them.
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

    def due(self, step: int) -> bool:
        """Whether `step` is to be saved."""
        if self._rule is None:
            return True
        if self._rule.steps is not None and step % self._rule.steps == 0:
            return True
        return self._rule.seconds is not None and self._clock() - self._last >= self._rule.seconds

    def saved(self) -> None:
        """Notes that a save has begun: its seconds count from here."""
        self._last = self._clock()
