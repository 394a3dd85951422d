"""The mixture that a failed restore leaves: partly the checkpoint's values, partly the old ones."""

from __future__ import annotations

from deepfreeze.errors import CheckpointError, message_of
from deepfreeze.restoring.restore_plan import RestorePlan
from deepfreeze.restoring.restorer import Restorer


class HalfRestored:
    """Whether the state is such a mixture, until a restore covers all that failed ones touched."""

    def __init__(self) -> None:
        self._why: str | None = None
        self._touched: set[str] = set()

    def refuse(self, step: int) -> None:
        """CheckpointError if the state is a mixture: it is never saved."""
        if self._why is None:
            return
        raise CheckpointError(
            f"save step {step}: refused until a restore succeeds, because a failed one "
            f"left the state half restored ({self._why})",
            code="invalid_argument",
        )

    def failed(self, restorer: Restorer, error: BaseException) -> None:
        """Notes that a restore has failed with `error`."""
        if restorer.modified:
            self._why = message_of(error)
            self._touched |= restorer.touched

    def restored(self, plan: RestorePlan, *, whole: bool) -> None:
        """Notes a successful restore, which must cover all that the failed ones touched."""
        if whole or self._touched <= plan.touched:
            self._why = None
            self._touched = set()
