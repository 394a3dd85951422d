"""A checkpointer's view of its farther tiers."""

from __future__ import annotations

from deepfreeze import _core


class Tiered:
    """What a checkpointer says about its tiers. In a forked child it says nothing."""

    _engine: _core.Engine

    def tier_status(self) -> list[_core.TierStatus]:
        """How far each of `tiers` is behind: checkpoints waiting, bytes, failures, the last error.

        Empty without tiers, and on ranks that do not commit.
        """
        return self._engine.tiers()

    def drain(self, deadline: float = 600.0) -> None:
        """Waits until the tiers have all they are to have, at most `deadline` seconds.

        CheckpointTimeoutError names the tiers that are behind, and why: the next program that opens
        the run goes on, or `deepfreeze flush`. FencedError or MismatchError: a tier belongs to
        another process or run. CorruptError: no nearer copy of a checkpoint verifies.
        """
        self._engine.drain(deadline)
