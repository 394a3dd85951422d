"""What stood before each entry of the last save, so that the next need not find out again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from deepfreeze.adapters.base import Entry

Pairs: TypeAlias = list[tuple[str, Any]]  # keys of entries, and tensors to watch for their sake


class RollCall(Protocol):
    """Of all that one guard stands before, when it was last looked at."""

    def holds(self, owned: Sequence[Any]) -> bool:
        """Whether these are of the same kinds, in the same places, and nothing else has changed."""


@dataclass(frozen=True, slots=True)
class Found:
    """What stands before one entry. Places are those in all that the guards stand before."""

    guard: int = 0  # its number; 0: nothing does, or not in time
    tensor: int = 0  # the place of what holds the entry
    follower: int | None = None


@dataclass(frozen=True)
class Asked:
    """All that the answer depends on, but for what the guards' roll calls see."""

    guards: list[int]
    hooked: dict[int, bool]
    eager: frozenset[str]
    keys: list[str]
    addresses: list[int]
    sizes: list[int]

    @classmethod
    def about(
        cls, guards: list[int], hooked: dict[int, bool], eager: set[str], entries: Sequence[Entry]
    ) -> Asked:
        """As it is now. Of entries those that are worth a guard."""
        return cls(
            guards,
            dict(hooked),
            frozenset(eager),
            [entry.key for entry in entries],
            [entry.address for entry in entries],
            [entry.bytes for entry in entries],
        )


@dataclass(frozen=True)
class GuardMemo:
    """One answer of Guards.watch()."""

    asked: Asked
    rolls: list[RollCall]
    found: list[Found]  # of each entry

    def again(
        self,
        asked: Asked,
        owned: list[list[Any]],
        entries: Sequence[Entry],
        tensors: Sequence[Sequence[Any]],
    ) -> dict[int, Pairs] | None:
        """Gives entries their guard, and says what to watch, as the last time; None: look anew."""
        same = asked == self.asked and all(
            roll.holds(each) for roll, each in zip(self.rolls, owned, strict=True)
        )
        return self._watched(owned, entries, tensors) if same else None

    def _watched(
        self, owned: list[list[Any]], entries: Sequence[Entry], tensors: Sequence[Sequence[Any]]
    ) -> dict[int, Pairs]:
        pool = [each for of_guard in owned for each in of_guard]
        watched: dict[int, Pairs] = {}
        for entry, own, found in zip(entries, tensors, self.found, strict=True):
            if not found.guard:
                continue
            entry.guard = found.guard
            follower = None if found.follower is None else pool[found.follower]
            pairs = watched.setdefault(found.guard, [])
            add_pairs(pairs, entry.key, pool[found.tensor], own, follower)
        return watched


def add_pairs(pairs: Pairs, key: str, tensor: Any, own: Sequence[Any], follower: Any) -> None:
    """What to watch for an entry that `tensor` holds: whatever counts versions of its memory."""
    pairs.append((key, tensor))
    for other in own:  # it may count its versions apart, as .data does
        if other is not tensor:
            pairs.append((key, other))
    if follower is not None:
        pairs.append((key, follower))
