"""Values that each rank has for itself."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class PerRank(Generic[T]):
    """A place in a state whose value each rank stores and restores for itself, such as its loader.

    Without it, tensors of one name, dtype and shape on all ranks are taken for copies of one, and a
    difference is a MismatchError. RNG is per rank by itself. If another number of ranks resumes,
    ranks that exist take their own; values left over, and ranks without a value, are logged.
    """

    def __init__(self, value: T) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"per_rank(<{type(self.value).__qualname__}>)"


def per_rank(value: T) -> PerRank[T]:
    """Marks `value` as each rank's own: `state = {"loader": df.per_rank(loader), ...}`."""
    return PerRank(value)
