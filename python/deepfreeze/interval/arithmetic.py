"""Computes the interval from a budget, or from the expected failures, and measured costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

_STEPS_MAX = 1 << 53  # a budget as small as 1e-300 must not overflow in the training loop


@dataclass(frozen=True)
class Cost:
    """Measured times, in seconds."""

    step_seconds: float  # of one step with no save beside it
    blocked_seconds: float  # per save: training stood still
    slowdown_seconds: float  # per save: the steps beside it took longer by this

    @property
    def save_seconds(self) -> float:
        """How much longer training takes for one save."""
        return self.blocked_seconds + self.slowdown_seconds


@dataclass(frozen=True)
class Target:
    """The user's targets; at least one of the two is set."""

    overhead: float | None
    mtbf: float | None  # seconds

    def __str__(self) -> str:
        parts = []
        if self.overhead is not None:
            parts.append(f"overhead={self.overhead:g}")
        if self.mtbf is not None:
            parts.append(f"mtbf={self.mtbf:g}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Choice:
    """An interval, and the reason for it."""

    steps: int
    cost: Cost
    target: Target
    decided_by: str  # the formula

    @property
    def seconds(self) -> float:
        """The undisturbed training between two saves."""
        return self.steps * self.cost.step_seconds

    @property
    def overhead(self) -> float:
        """The expected share of saves, as a fraction of the undisturbed training."""
        return self.cost.save_seconds / self.seconds

    def __str__(self) -> str:
        cost = self.cost
        every = "every step" if self.steps == 1 else f"every {self.steps} steps"
        return (
            f"{every} ({self.seconds:.3g} s), by {self.decided_by} "
            f"for {self.target}: a save costs {cost.save_seconds:.3g} s "
            f"({cost.blocked_seconds:.3g} s blocked, {cost.slowdown_seconds:.3g} s of slower "
            f"steps), a step takes {cost.step_seconds:.3g} s, so saves add {self.overhead:.2%}"
        )


def daly_seconds(save_seconds: float, mtbf: float) -> float:
    """The training between two saves that loses least to saves and failures together, in seconds.

    Young (CACM 17(9), 1974): sqrt(2 C M), if a save costs C and failures come M apart. Daly
    (FGCS 22(3), 2006) adds terms for intervals that are not short beside M: with r = C / 2M,
    sqrt(2 C M) (1 + sqrt(r) / 3 + r / 9) - C if C < 2M, else M.

    A save beside training is durable later than its cost says. Each failure loses that much more,
    whatever the interval is; so the best interval stays the same.
    """
    ratio = save_seconds / (2 * mtbf)
    if ratio >= 1:
        return mtbf
    young = math.sqrt(2 * save_seconds * mtbf)
    return young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_seconds


def choose(cost: Cost, target: Target) -> Choice:
    """The interval of least loss if an MTBF is given, but no more saves than the budget allows.

    In whole steps, rounded up.
    """
    seconds, decided_by = 0.0, "the budget"
    if target.overhead is not None:
        seconds = cost.save_seconds / target.overhead
    if target.mtbf is not None:
        best = daly_seconds(cost.save_seconds, target.mtbf)
        if best >= seconds:
            seconds, decided_by = best, "Young/Daly"
    steps = math.ceil(min(seconds / cost.step_seconds, _STEPS_MAX))
    return Choice(max(1, steps), cost, target, decided_by)
