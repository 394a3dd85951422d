"""Due steps at which somebody else's training loop can't save."""

from __future__ import annotations

from deepfreeze.interval.policy import Every


class PassedSteps:
    """Whether a multiple of `every(steps=)` was passed over, to be made up for by a save().

    For loops that report a step only now and then: once per accumulation, or several at a time.
    """

    def __init__(self, rule: Every | None, step: int = 0) -> None:
        self._steps = None if rule is None else rule.steps
        self._seen = step

    def passed(self, step: int) -> bool:
        """Whether one lies between the last call and this step, not counting the step itself."""
        seen, self._seen = self._seen, step
        return self._steps is not None and (step - 1) // self._steps > seen // self._steps
