"""Where the tensors of the last capture lay, so that the next need not find out again.

Which tensors share memory is found by comparing all of a state. Between two saves of a run nearly
all lie where they lay; then the entries are those of the last time, and only their owners are new.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import torch

from deepfreeze.adapters.base import Entry
from deepfreeze.adapters.torch_recall import Seen
from deepfreeze.adapters.torch_tensors import Pending, host_copy
from deepfreeze.tree import Node

if TYPE_CHECKING:
    from deepfreeze.capture import Capture


@dataclass(slots=True)
class _Known:
    """One tensor of the last capture."""

    low: int
    high: int
    key: str
    view: Node
    entry: int  # its place among the entries that tensors made
    alone: bool  # it is stored in place, and shares its memory with nothing
    copied: bool  # it is stored from a copy on the host
    loose: bool = False  # it has moved before


@dataclass
class _Forms:
    """Of tensors in order: where in the state they are, and how their elements lie in memory."""

    paths: list[str]
    storage_bytes: list[int]
    shapes: list[torch.Size]
    strides: list[tuple[int, ...]]
    dtypes: list[torch.dtype]
    devices: list[torch.device]
    lazy: list[bool]  # a negation or conjugate that is not carried out yet

    @classmethod
    def of(cls, seen: list[Seen], storages: list[torch.UntypedStorage]) -> _Forms:
        tensors = [tensor for _, tensor, _ in seen]
        return cls(
            [path for _, _, path in seen],
            [storage.nbytes() for storage in storages],
            [tensor.shape for tensor in tensors],
            [tensor.stride() for tensor in tensors],
            [tensor.dtype for tensor in tensors],
            [tensor.device for tensor in tensors],
            [tensor.is_neg() or tensor.is_conj() for tensor in tensors],
        )


def _lies_in(address: int, storage: torch.UntypedStorage) -> bool:
    return storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes()


class TensorMemo:
    """The tensors of one capture in the walk's order, and the entries that they made."""

    def __init__(self) -> None:
        self._known: list[_Known] = []
        self._forms: _Forms | None = None
        self._places: list[int] = []  # addresses, the last time
        self._all_alone = False  # each has made the entry of its own number
        self._entries: list[Entry] = []  # without owners: a memo keeps no memory alive
        self._keys_before: frozenset[str] = frozenset()  # taken before by other adapters
        self._lows: list[int] = []  # of the tensors that have not moved so far, in order
        self._highs: list[int] = []  # the highest of each and those before it

    def record(
        self,
        seen: list[Seen],
        waiting: list[Pending],
        before: int,
        keys: frozenset[str],
        entries: list[Entry],
    ) -> None:
        """Notes what store_all() has made of `waiting`; `entries` from `before` on are theirs."""
        made = entries[before:]
        places = {entry.key: index for index, entry in enumerate(made)}
        members = Counter(item.node["k"] for item in waiting)
        self._known = []
        for (_, tensor, _), item in zip(seen, waiting, strict=True):
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
        self._entries = [replace(entry, owner=None, tensors=(), guard=0) for entry in made]
        self._keys_before = keys
        self._forms = _Forms.of(seen, [tensor.untyped_storage() for _, tensor, _ in seen])
        self._places = []
        self._all_alone = all(each.alone and each.entry == i for i, each in enumerate(self._known))
        self._settle()

    def _forget(self) -> None:
        self._known = []

    def _settle(self) -> None:
        spans = sorted((e.low, e.high) for e in self._known if e.high > e.low and not e.loose)
        self._lows = [low for low, _ in spans]
        self._highs = list(accumulate((high for _, high in spans), max))

    def replay(self, seen: list[Seen], capture: Capture) -> bool:
        """Fills the nodes and adds the entries as the last time; False where that may be wrong."""
        if len(seen) != len(self._known) or not seen:
            return False
        storages = [tensor.untyped_storage() for _, tensor, _ in seen]
        if capture.keys.taken() != self._keys_before or _Forms.of(seen, storages) != self._forms:
            return False
        if not self._may_lie_at([tensor.data_ptr() for _, tensor, _ in seen]):
            return False
        if self._all_alone:
            self._add_entries_alone(seen, storages, capture)
        else:
            self._add_entries(seen, storages, capture)
        return True

    def _may_lie_at(self, places: list[int]) -> bool:
        if places == self._places:
            return True
        moved = [
            (each, low)
            for low, each in zip(places, self._known, strict=True)
            if each.loose or (low != each.low and each.high > each.low)
        ]
        if moved and not self._may_move(moved):
            return False
        self._places = places
        return True

    def _may_move(self, moved: list[tuple[_Known, int]]) -> bool:
        """Whether tensors that lie elsewhere now share that memory with no other either."""
        if not all(each.alone for each, _ in moved):
            return False
        if not all(each.loose for each, _ in moved):
            for each, _ in moved:
                each.loose = True
            self._settle()
        spans = sorted((low, low + each.high - each.low) for each, low in moved)
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

    def _add_entries_alone(
        self, seen: list[Seen], storages: list[torch.UntypedStorage], capture: Capture
    ) -> None:
        for (node, _, _), each in zip(seen, self._entries, strict=True):
            node["k"] = each.key
        capture.entries += [
            Entry(e.key, e.dtype, e.shape, e.logical_dtype, low, e.bytes, storage, (tensor,))
            for e, low, storage, (_, tensor, _) in zip(
                self._entries, self._places, storages, seen, strict=True
            )
        ]

    def _add_entries(
        self, seen: list[Seen], storages: list[torch.UntypedStorage], capture: Capture
    ) -> None:
        tensors: list[list[torch.Tensor]] = [[] for _ in self._entries]
        # The storages too: a tensor may be given another one while its bytes are copied.
        owners: list[list[object]] = [[] for _ in self._entries]
        for (node, tensor, _), storage, each in zip(seen, storages, self._known, strict=True):
            node["k"] = each.key
            if each.view is not None:
                node["view"] = each.view
            tensors[each.entry].append(tensor)
            owners[each.entry].append(storage)
            if each.alone:
                self._entries[each.entry].address = each.low
        made = [
            Entry(e.key, e.dtype, e.shape, e.logical_dtype, e.address, e.bytes, owner, own)
            for e, owner, own in zip(self._entries, owners, tensors, strict=True)
        ]
        for each in self._known:
            entry = made[each.entry]
            if each.copied and isinstance(entry.owner, list):
                host = host_copy(entry.tensors[0])
                entry.address, entry.owner = host.data_ptr(), (host,)
        capture.entries += made
