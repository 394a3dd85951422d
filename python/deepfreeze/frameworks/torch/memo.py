"""Remembers the memory of the last capture's tensors, so that the next capture is faster.

To find which tensors share memory, all tensors of a state are compared. Between two saves of a run
nearly all stay in place; then the entries are the last ones, and only their owners are new.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise

import torch

from deepfreeze import _core
from deepfreeze.base.names import Owner
from deepfreeze.frameworks.torch.recall import Seen, roll_call
from deepfreeze.frameworks.torch.tensors import Pending, host_copy
from deepfreeze.state.contracts import Moved, Series, Sink
from deepfreeze.state.entry import Entry
from deepfreeze.state.tree import Node


@dataclass(slots=True)
class _Known:
    """One tensor of the last capture."""

    low: int
    high: int
    key: str
    view: Node
    entry: int  # its index in the entries made of tensors
    alone: bool  # it is stored in place, and shares its memory with nothing
    copied: bool  # it is stored from a copy on the host
    loose: bool = False  # whether it has moved before


def _form_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """The layout of its elements in memory."""
    return (
        tensor.untyped_storage().nbytes(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.device,
        tensor.is_neg() or tensor.is_conj(),  # lazily: the memory has other values
    )


def _lies_in(address: int, storage: torch.UntypedStorage) -> bool:
    return storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes()


class TensorMemo:
    """The tensors of one capture in the walk's order, and the entries that they made."""

    def __init__(self) -> None:
        self._known: list[_Known] = []
        self._paths: list[list[str]] = []  # by segment
        self._forms: list[tuple[object, ...]] = []
        self._places: list[int] = []  # their last addresses
        self._moved: list[int] = []  # numbers of the tensors that no recall answered for
        self._roll: _core.RollCall | None = None  # of these tensors
        # For each entry its tensors, by number; None if each has made the entry of its own number.
        self._members: list[list[int]] | None = None
        self._copied: list[int] = []  # for each entry from a copy on the host, a tensor of it
        self._entries: list[Entry] = []
        self._keys_before: frozenset[str] = frozenset()  # taken before by other adapters
        self._owners: dict[str, Owner] = {}  # of places at which ranks differ
        self._lows: list[int] = []  # of the tensors that have not moved so far, in order
        self._highs: list[int] = []  # the highest of each and those before it

    def record(
        self,
        seen: Seen,
        waiting: list[Pending],
        keys: frozenset[str],
        made: list[Entry],
        owners: dict[str, Owner],
    ) -> None:
        """Notes the entries that store_all() has made of `waiting`."""
        places = {entry.key: index for index, entry in enumerate(made)}
        members = Counter(item.node["k"] for item in waiting)
        self._known = []
        for tensor, item in zip(seen.tensors, waiting, strict=True):
            if item.tensor.data_ptr() != tensor.data_ptr():
                return self._forget()  # a lazy conjugate: each save resolves it anew
            key, view = item.node["k"], item.node.get("view")
            in_place = made[places[key]].address == item.low
            if (view is not None or members[key] > 1) and not _lies_in(
                made[places[key]].address, tensor.untyped_storage()
            ):
                return self._forget()  # a copy of memory that several share
            self._known.append(
                _Known(
                    low=item.low,
                    high=item.high,
                    key=key,
                    view=view,
                    entry=places[key],
                    alone=in_place and members[key] == 1 and view is None,
                    copied=not in_place and view is None,
                )
            )
        self._entries = made
        self._keys_before = keys
        self._owners = owners
        self._paths = [segment.paths for segment in seen.segments]
        self._forms = [*map(_form_of, seen.tensors)]
        self._places = [item.low for item in waiting]
        self._await(seen)
        self._note_members()
        self._settle()

    def _note_members(self) -> None:
        self._copied = [*{e.entry: n for n, e in enumerate(self._known) if e.copied}.values()]
        self._members = None
        if not all(each.alone for each in self._known):
            self._members = [[] for _ in self._entries]
            for number, each in enumerate(self._known):
                self._members[each.entry].append(number)

    def _forget(self) -> None:
        self._known = []

    def _await(self, seen: Seen) -> None:
        """The next time these tensors have to be asked whether they have moved."""
        self._moved = seen.moved
        self._roll = roll_call([seen.tensors[place] for place in seen.moved])

    def _settle(self) -> None:
        spans = sorted((e.low, e.high) for e in self._known if e.high > e.low and not e.loose)
        self._lows = [low for low, _ in spans]
        self._highs = list(accumulate((high for _, high in spans), max))

    def replay(self, seen: Seen, capture: Sink) -> bool:
        """Fills the nodes and adds the entries as the last time; False if they may be wrong."""
        if not self._known or not self._has_paths_of(seen):
            return False
        if capture.keys.taken() != self._keys_before or capture.keys.owners != self._owners:
            return False
        moved = [] if self._all_answer(seen) else self._moved_alike(seen)
        if moved is None:
            return False
        self._add_entries(seen, capture, moved)
        return True

    def _has_paths_of(self, seen: Seen) -> bool:
        paths = [segment.paths for segment in seen.segments]
        if paths == self._paths:  # the lists of recalled objects are the same ones
            return True
        if seen.paths != [*chain.from_iterable(self._paths)]:
            return False
        self._paths = paths  # in other segments: another object is recalled now
        return True

    def _all_answer(self, seen: Seen) -> bool:
        """Whether all tensors are in their old memory, in the same form."""
        if self._roll is None or seen.moved != self._moved:
            return False
        answers = self._roll.answer([seen.tensors[place] for place in seen.moved])
        if answers is None:
            return False
        for (segment, place), storage in zip(seen.in_segments(seen.moved), answers, strict=True):
            segment.storages[place] = storage
        return True

    def _moved_alike(self, seen: Seen) -> list[int] | None:
        """The places of tensors that have moved.

        None unless all have their old form, and share memory with no other.
        """
        tensors = [seen.tensors[place] for place in seen.moved]
        if [*map(_form_of, tensors)] != [self._forms[place] for place in seen.moved]:
            return None
        places = [tensor.data_ptr() for tensor in tensors]
        if not self._may_lie_at(places, seen.moved):
            return None
        moved: list[int] = []
        for (segment, place), tensor in zip(seen.in_segments(seen.moved), tensors, strict=True):
            segment.storages[place] = tensor.untyped_storage()
        for place, low in zip(seen.moved, places, strict=True):
            if self._places[place] != low:
                moved.append(place)
            self._places[place] = low
        self._await(seen)
        return moved

    def _may_lie_at(self, places: list[int], numbers: list[int]) -> bool:
        known = [self._known[number] for number in numbers]
        moved = [
            (each, low)
            for low, each in zip(places, known, strict=True)
            if each.loose or (low != each.low and each.high > each.low)
        ]
        return not moved or self._may_move(moved)

    def _may_move(self, moved: list[tuple[_Known, int]]) -> bool:
        """Whether tensors that have moved share their new memory with no other."""
        if not all(each.alone for each, _ in moved):
            return False
        if not all(each.loose for each, _ in moved):
            for each, _ in moved:
                each.loose = True
            self._settle()
        numbers = {id(each) for each, _ in moved}
        spans = sorted(
            [(low, low + each.high - each.low) for each, low in moved]
            # Tensors that have moved before and stand still now are not among the settled.
            + [(e.low, e.high) for e in self._known if e.loose and id(e) not in numbers]
        )
        if any(high > low for (_, high), (low, _) in pairwise(spans)):
            return False
        if any(self._overlaps_settled(low, high) for low, high in spans):
            return False
        for each, low in moved:
            each.low, each.high = low, low + each.high - each.low
        return True

    def _overlaps_settled(self, low: int, high: int) -> bool:
        index = bisect_right(self._lows, low)
        if index > 0 and self._highs[index - 1] > low:
            return True
        return index < len(self._lows) and self._lows[index] < high

    def _add_entries(self, seen: Seen, capture: Sink, moved: list[int]) -> None:
        # All other nodes were filled in when they were stored.
        for place, (segment, at) in zip(seen.moved, seen.in_segments(seen.moved), strict=True):
            each, node = self._known[place], segment.nodes[at]
            node["k"] = each.key
            if each.view is not None:
                node["view"] = each.view
            if each.alone:
                self._entries[each.entry].address = self._places[place]
        # Storages too: a tensor may be given another storage while its bytes are copied.
        capture.owners += [segment.storages for segment in seen.segments]
        capture.owners.append(seen.tensors)
        for place in self._copied:
            host = host_copy(seen.tensors[place].detach())
            index = self._known[place].entry
            self._entries[index] = replace(self._entries[index], address=host.data_ptr())
            capture.owners.append(host)
        entries = [self._known[place].entry for place in moved]
        capture.add_series(
            Series(self._entries, seen.tensors, self._members, Moved(moved, entries))
        )
