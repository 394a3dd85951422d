"""The mixture that a failed restore leaves: partly the checkpoint's values, partly the old ones."""

from __future__ import annotations

from deepfreeze.errors import CheckpointError, message_of
from deepfreeze.restoring.restore_plan import RestorePlan
from deepfreeze.restoring.restorer import Restorer


class HalfRestored:
    """Whether the state is such a mixture, until a restore covers all that failed ones touched."""

    def __init__(self) -> None:
        self.why: str | None = None  # the error that left the mixture, if there is one
        self._touched: set[str] = set()

    def error(self, step: int) -> CheckpointError:
        """The error of a save while the state is a mixture."""
        return CheckpointError(
            f"save step {step}: refused until a restore succeeds, because a failed one "
            f"left the state half restored ({self.why})",
            code="invalid_argument",
        )

    def failed(self, restorer: Restorer, error: BaseException) -> None:
        """Notes that a restore has failed with `error`."""
        if restorer.modified:
            self.why = message_of(error)
            self._touched |= restorer.touched

    def restored(self, plan: RestorePlan, *, whole: bool) -> None:
        """Notes a successful restore, which must cover all that the failed ones touched."""
        if whole or self._touched <= plan.touched:
            self.why = None
            self._touched = set()
