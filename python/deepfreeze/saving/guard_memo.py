"""Remembers the guard of each entry of the last save, so that the next is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from deepfreeze.state.contracts import RollCall
from deepfreeze.state.entry import Entry

Pairs: TypeAlias = list[tuple[str, Any]]  # keys of entries, with tensors to watch for them


@dataclass(frozen=True, slots=True)
class Found:
    """The guard of one entry. Places count among all values that the guards own."""

    guard: int = 0  # its number; 0: it has none, or none in time
    tensor: int = 0  # the place of the tensor that holds the entry
    follower: int | None = None


@dataclass(frozen=True)
class Asked:
    """The inputs of the answer, except those that the guards' roll calls see."""

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
        """The present inputs, with the entries that are worth a guard."""
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
    found: list[Found]  # for each entry

    def again(
        self,
        asked: Asked,
        owned: list[list[Any]],
        entries: Sequence[Entry],
        tensors: Sequence[Sequence[Any]],
    ) -> dict[int, Pairs] | None:
        """Gives entries their last guards and returns the watches; None if they must be found."""
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
    """Adds the tensors to watch for an entry in `tensor`: all that count versions of its memory."""
    pairs.append((key, tensor))
    for other in own:  # it may count its versions apart, as .data does
        if other is not tensor:
            pairs.append((key, other))
    if follower is not None:
        pairs.append((key, follower))
