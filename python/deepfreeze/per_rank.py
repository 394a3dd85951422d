"""What each rank has for itself."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class PerRank(Generic[T]):
    """A place in a state whose value each rank stores and restores for itself: its loader, say.

    Without it tensors of one name, dtype and shape on all ranks are taken for copies of one, and a
    difference is a MismatchError. RNG is per rank by itself. Where another number of ranks resumes,
    those that there are take theirs; what is left over, and who gets none, is logged.
    """

    def __init__(self, value: T) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"per_rank(<{type(self.value).__qualname__}>)"


def per_rank(value: T) -> PerRank[T]:
    """`value` as each rank's own: `state = {"loader": df.per_rank(loader), ...}`."""
    return PerRank(value)
