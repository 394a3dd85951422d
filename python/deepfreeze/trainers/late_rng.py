"""Random generators of a training whose loop belongs to a framework's trainer."""

from __future__ import annotations

from typing import Any

from deepfreeze.frameworks.in_use.rng import RNG


class LateRNG(RNG):
    """The global generators, put back by a separate call after the restore.

    Between a restore and its first batch a trainer makes draws that an uninterrupted run does not
    make, for example when it restarts a loader.
    """

    def __init__(self) -> None:
        super().__init__()
        self._restored: dict[str, Any] | None = None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keeps it for put_back()."""
        self._restored = state

    def put_back(self) -> None:
        """Sets the generators to the restored state, if there was a restore since the last call."""
        state, self._restored = self._restored, None
        if state is not None:
            super().load_state_dict(state)
