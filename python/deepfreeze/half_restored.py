"""What a restore that failed has left of a state: part of a checkpoint, part of what was there."""

from __future__ import annotations

from deepfreeze.errors import CheckpointError, message_of
from deepfreeze.reading import Restorer
from deepfreeze.restore_plan import RestorePlan


class HalfRestored:
    """Whether the state is that, until a restore makes good what the failed ones touched."""

    def __init__(self) -> None:
        self._why: str | None = None
        self._touched: set[str] = set()

    def refuse(self, step: int) -> None:
        """CheckpointError where it is: such a state is never saved."""
        if self._why is None:
            return
        raise CheckpointError(
            f"save step {step}: refused until a restore succeeds, because one that failed "
            f"left the state half restored ({self._why})",
            code="invalid_argument",
        )

    def failed(self, restorer: Restorer, error: BaseException) -> None:
        """A restore ended so."""
        if restorer.modified:
            self._why = message_of(error)
            self._touched |= restorer.touched

    def restored(self, plan: RestorePlan, *, whole: bool) -> None:
        """One has succeeded. A part of the state does not make good what another part suffered."""
        if whole or self._touched <= plan.touched:
            self._why = None
            self._touched = set()
