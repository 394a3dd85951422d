"""Turns a live state into its stored form: entries, and the tree that refers to them."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from deepfreeze import _core
from deepfreeze.base.names import KeyTable, Owner, shown
from deepfreeze.errors import EncodeError, NoSpaceError, make_error
from deepfreeze.frameworks.generators import kind_of
from deepfreeze.frameworks.in_use.adapters import adapters_in_use, environment_of
from deepfreeze.frameworks.in_use.held_objects import HeldObjects, encode_holder
from deepfreeze.frameworks.in_use.rng import RNG
from deepfreeze.frameworks.stateful import may_hold, stateful_node
from deepfreeze.state.contracts import Adapter, Series
from deepfreeze.state.encoder import Encoder
from deepfreeze.state.entry import Entry
from deepfreeze.state.memo import Memo
from deepfreeze.state.per_rank import PerRank
from deepfreeze.state.registry import REGISTERED
from deepfreeze.state.tree import Node


def _hint(value: object) -> str:
    """Advice for a type of value that is often tried."""
    if kind_of(value) is not None:
        return "; store a generator as df.RNG(generator)"
    if type(value).__name__ == "DataLoader":
        return "; torchdata's StatefulDataLoader has a state_dict"
    return "; store its .value" if isinstance(value, enum.Enum) else ""


class Capture:
    """One walk over a state. Its entries point into live memory: hold it until they are copied."""

    def __init__(self, state: object, memo: Memo | None = None, rank: int | None = None) -> None:
        self.state = state
        self.memo = Memo() if memo is None else memo
        self.entries: list[Entry] = []
        self._tensors: list[Sequence[Any]] = []  # of each entry outside of the series
        # Whether the table has the places of the capture before, from which a series is kept.
        self.follows_table = self.memo.is_placed
        self.memo.is_placed = False
        self.series: Series | None = None
        self.series_begin = 0  # the place of its first entry
        # The owners of that memory, and lists of them.
        self.owners: list[object] = []
        self.keys = KeyTable(rank)
        self._adapters: list[Adapter] = adapters_in_use(self.memo)
        self.direct = {
            kind: partial(adapter.encode, capture=self)
            for adapter in reversed(self._adapters)
            for kind in adapter.numerous
            if kind not in REGISTERED
        }
        self._remembering = [adapter for adapter in self._adapters if adapter.remembers]
        self._encoder = Encoder(self)
        self._held = HeldObjects(state, self.memo.held)
        self._inside = 0
        self._rngs: list[tuple[RNG, str, dict[str, Node]]] = []
        if not isinstance(state, (dict, list)):
            kind = type(state).__qualname__
            raise EncodeError(f"the state: a {kind}, but only a dict or a list can be restored")
        try:
            tree = self._encoder.encode(state, "")
            self._encode_rngs()
        except RecursionError as cause:
            raise EncodeError("the state: nested too deep for the stack that is left") from cause
        for adapter in self._remembering:
            adapter.finish(self)
        self.text = self.memo.text.dumps(tree)
        self.environment = environment_of(self._adapters)
        # These refer back here: with them only the cyclic collector could free the state.
        del self._encoder, self.direct, self._adapters, self._remembering, self._held

    @property
    def tensors(self) -> list[Sequence[Any]]:
        """Each entry's tensors of the framework."""
        if self.series is None:
            return self._tensors
        before, behind = self._tensors[: self.series_begin], self._tensors[self.series_begin :]
        return [*before, *self.series.tensors_of_entries(), *behind]

    def others(self) -> list[Entry]:
        """The entries outside of the series."""
        if self.series is None:
            return self.entries
        end = self.series_begin + len(self.series.entries)
        return self.entries[: self.series_begin] + self.entries[end:]

    def moved(self) -> list[int] | None:
        """The places among own_entries() of the series' entries that may have moved.

        None if there is no series.
        """
        if self.series is None:
            return None
        moved = self.series.moved.entries
        if not self.keys.owners:
            return [self.series_begin + place for place in moved]
        wanted = {id(self.series.entries[place]) for place in moved}
        own = self.own_entries() if wanted else []
        return [place for place, entry in enumerate(own) if id(entry) in wanted]

    def own_entries(self) -> list[Entry]:
        """The entries that this rank stores, alone or with others."""
        if not self.keys.owners:
            return self.entries
        return [entry for entry in self.entries if not entry.is_anothers]

    def encode(self, value: object, path: str) -> Node:
        """The node of a value that belongs to an object of the state, for adapters."""
        self._inside += 1
        node = self._encoder.encode(value, path)
        self._inside -= 1
        return node

    def encode_part(self, value: object, path: str) -> Node:
        """The node of a part of a container that an adapter knows: it may hold objects, too."""
        return self._encoder.encode(value, path)

    def refuse_inside(self, value: object, path: str) -> None:
        """EncodeError for an object within another one's state: it could not be restored there."""
        if self._inside:
            raise EncodeError(
                f"{shown(path)}: a {type(value).__qualname__} within the state of another object; "
                "give it a place of its own in the state, or put its state_dict() there"
            )

    def _encode_rngs(self) -> None:
        # Encoded last, because another object's state_dict() may draw: the program continues from
        # here.
        for rng, path, node in self._rngs:
            node.update(stateful_node(rng, path, self))

    def encode_leaf(self, value: object, path: str) -> Node:
        """The node of a value that is not plain."""
        if isinstance(value, PerRank):
            self.refuse_inside(value, path)
            self.keys.own(path, Owner.EACH)
            return self._encoder.encode(value.value, path)
        if isinstance(value, RNG):
            self.refuse_inside(value, path)
            self.keys.own(path, Owner.EACH)
            node: dict[str, Node] = {}
            self._rngs.append((value, path, node))
            return node
        known = REGISTERED.get(type(value))
        if known is not None:
            return {"$": "ext", "t": known.name, "v": self.encode(known.to_tree(value), path)}
        for adapter in self._adapters:
            if adapter.claims(value):
                held = self._held.of(value) if not self._inside and may_hold(value) else None
                if not held:
                    return adapter.encode(value, path, self)
                return encode_holder(value, held, path, self, adapter)
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise EncodeError(
            f"{shown(path)}: a {kind} can't be stored: it has no state_dict, and "
            f"df.register_type does not know it{_hint(value)}"
        )

    def add(self, entry: Entry, owners: Iterable[object], tensors: Sequence[Any] = ()) -> None:
        """Adds one entry; `owners` and `tensors` keep its memory alive."""
        self.entries.append(entry)
        self.owners += owners
        self.owners += tensors
        self._tensors.append(tensors)

    def add_series(self, series: Series) -> None:
        """Adds many entries, whose owners are added already. One series at most for a capture."""
        assert self.series is None, "a capture has one series"
        self.series, self.series_begin = series, len(self.entries)
        self.entries += series.entries

    def recall(self, mapping: dict[Any, Any], path: str) -> Node | None:
        """The node of a dict that an adapter remembers from the last walk."""
        known = (adapter.recall(mapping, path) for adapter in self._remembering)
        return next((node for node in known if node is not None), None)

    def note(self, mapping: dict[Any, Any], path: str, node: Node) -> None:
        """Lets adapters recognise a dict in the next walk."""
        for adapter in self._remembering:
            adapter.note(mapping, path, node)

    def store_bytes(self, data: bytes, path: str) -> str:
        """Makes `data` an entry and returns its key."""
        key = self.keys.take(path)
        address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
        self.add(Entry(key, "U8", (len(data),), "", address, len(data)), [data])
        return key


def walk(state: object, memo: Memo | None = None, rank: int | None = None) -> Capture:
    """The capture that save() needs of a state; NoSpaceError if memory is refused.

    `memo` comes from the last walk by the same checkpointer; `rank` is None without other ranks.
    """
    try:
        with paused_gc():
            return Capture(state, memo, rank)
    except EncodeError as error:
        if isinstance(error.__cause__, MemoryError):
            raise NoSpaceError(str(error)) from error
        raise
    except (RuntimeError, MemoryError) as cause:  # torch has no type of its own for host memory
        refused = isinstance(cause, MemoryError) or "memory" in str(cause)
        code = "no_space" if refused else "internal"
        raise make_error(code, f"capture: {cause!r}") from cause


def table_of(entries: list[Entry], memo: Memo, moved: Sequence[int] | None = None) -> _core.Table:
    """The entries, as the engine takes them; the last table again if the entries are alike.

    `moved`: all other entries that were in the last table, too, have kept their places and guards.
    """
    table, last = memo.table, memo.entries
    new = _core.differing(entries, last) if len(entries) == len(last) else None
    if table is None or new is None or not all(_are_alike(entries[n], last[n]) for n in new):
        table = _core.Table(
            [(e.key, e.dtype, e.shape, e.logical_dtype, e.bytes, e.box) for e in entries]
        )
        new = None
    places = range(len(entries)) if new is None or moved is None else {*new, *moved}
    table.place([(n, e.address, e.guard, e.device) for n in places for e in (entries[n],)])
    memo.table, memo.entries, memo.is_placed = table, entries, True
    return table


def _are_alike(one: Entry, other: Entry) -> bool:
    """Whether two entries differ in their place and guard at most."""
    return (one.key, one.dtype, one.shape, one.logical_dtype, one.bytes, one.box) == (
        other.key, other.dtype, other.shape, other.logical_dtype, other.bytes, other.box,
    )  # fmt: skip


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """Keeps the cyclic collector away from the many new objects of a walk, which are all alive."""
    enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if enabled:
            gc.enable()
