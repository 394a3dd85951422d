"""Generators of a training whose loop is another's: a trainer of some framework."""

from __future__ import annotations

from typing import Any

from deepfreeze.rng import RNG


class LateRNG(RNG):
    """The global generators, put back by a call of their own, after the restore.

    Between a restore and its first batch a trainer draws what a run that goes on does not: for a
    loader that it begins anew, say.
    """

    def __init__(self) -> None:
        super().__init__()
        self._restored: dict[str, Any] | None = None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keeps it for put_back()."""
        self._restored = state

    def put_back(self) -> None:
        """Sets the generators as they were restored; nothing, where none were since the last."""
        state, self._restored = self._restored, None
        if state is not None:
            super().load_state_dict(state)
