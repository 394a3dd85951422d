"""Arrays to store, live memory to fill, and buffers between: their bytes, and their overlaps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from deepfreeze.state.tree import Node

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOST = -1  # no device: the engine's mark of host memory
_OVERLAP_WORK_MAX = 10_000  # candidates tried before two places count as overlapping


@dataclass(slots=True)
class Entry:
    """An array to store, and the place of its bytes in memory."""

    key: str
    dtype: str  # as safetensors names it
    shape: tuple[int, ...]
    logical_dtype: str  # "" if `dtype` is the real one
    address: int
    bytes: int
    guard: int = 0  # the number of the fence before its next change; 0: there is none
    # For a part of a tensor: its offset, and the shape of the whole.
    box: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    is_anothers: bool = False  # another rank stores it
    is_held: bool = False  # nothing writes to its memory while its owners live
    device: int = HOST  # the ordinal of the CUDA device that its bytes lie on


class Layout(NamedTuple):
    """The shape and strides of an array in memory, in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item_bytes: int

    @property
    def span(self) -> int:
        """The number of bytes from the first to the last that it uses."""
        if 0 in self.shape:
            return 0
        steps = zip(self.shape, self.strides, strict=True)
        return self.item_bytes + sum((size - 1) * stride for size, stride in steps)

    @staticmethod
    def stored(view: Node, shape: tuple[int, ...], item_bytes: int) -> Layout:
        """The layout of the elements in their entry: given by its view, else contiguous."""
        if view is not None:
            return Layout(shape, tuple(int(s) * item_bytes for s in view["stride"]), item_bytes)
        steps = accumulate(reversed(shape[1:]), mul, initial=item_bytes)
        return Layout(shape, tuple(reversed(list(steps)))[: len(shape)], item_bytes)

    def walks_like(self, other: Layout) -> bool:
        """Whether both take the same steps; a dimension of one element takes none."""
        steps = zip(self.shape, self.strides, other.strides, strict=True)
        return self.shape == other.shape and all(a == b for n, a, b in steps if n > 1)


@dataclass(slots=True, eq=False)  # a restore makes one for each tensor
class Place:
    """Live memory that a stored entry fills."""

    path: str
    address: int
    bytes: int
    direct: bool  # whether the entry's bytes can be read straight into it
    copy: Callable[[], object]  # fills it from the entry's buffer otherwise
    live: Layout | None = None  # None: not checked for memory that it shares with others
    stored: Layout | None = None  # the layout of these elements in the entry,
    offset: int = 0  # from this byte on
    device: str = "cpu"
    # If the engine writes to a device itself: its ordinal, and the stream to wait for.
    ordinal: int = HOST
    stream: int = 0
    # If the live memory is a part of the entry: the part's offset, and its extent.
    box: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    touch: Callable[[], object] | None = None  # tells its framework that memory is written


@dataclass(frozen=True)
class Buffer:
    """Memory for an entry that can't be read straight into live memory.

    Restored values may be views of it, so it is never used again.
    """

    array: NDArray[Any]  # its bytes, one-dimensional
    address: int
    bytes: int
    tensor: Any  # the same memory as a tensor of the entry's dtype and shape, if torch is used


_Keyed: TypeAlias = tuple[str, Place]  # an entry's key, and the place that it fills


def sharing_conflicts(places: dict[str, list[Place]]) -> list[tuple[Place, Place]]:
    """Pairs of places that share memory, but whose stored elements are not shared likewise."""
    conflicts = list(_unlike_twins(places))
    for group in _overlapping(places):
        if len({_origin(*item) for item in group}) > 1:
            conflicts += _conflicts_in(group)
    return conflicts


def _unlike_twins(places: dict[str, list[Place]]) -> Iterator[tuple[Place, Place]]:
    """Checks places without a layout: the same memory must be stored under one key."""
    seen: dict[tuple[str, int, int], _Keyed] = {}
    for key, filled in places.items():
        for place in filled:
            if place.live is not None or place.bytes == 0:
                continue
            other_key, other = seen.setdefault(
                (place.device, place.address, place.bytes), (key, place)
            )
            if other_key != key:
                yield place, other


def _overlapping(places: dict[str, list[Place]]) -> Iterator[list[_Keyed]]:
    """Groups of places whose spans of memory overlap."""
    by_device: dict[str, list[_Keyed]] = defaultdict(list)
    for key, filled in places.items():
        for place in filled:
            if place.live is not None and place.live.span:
                by_device[place.device].append((key, place))
    for items in by_device.values():
        items.sort(key=lambda item: item[1].address)
        group: list[_Keyed] = []
        high = 0
        for item in items:
            if group and item[1].address >= high:
                yield group
                group = []
            group.append(item)
            high = max(high, item[1].address + _span(item[1].live))
        if group:
            yield group


def _span(layout: Layout | None) -> int:
    return layout.span if layout is not None else 0


def _origin(key: str, place: Place) -> Hashable:
    """Equal for two places if equal live addresses mean equal stored bytes."""
    live, stored = place.live, place.stored
    if live is None or stored is None or live.walks_like(stored):
        return key, place.address - place.offset
    return key, place.address - place.offset, live, stored


def _conflicts_in(group: list[_Keyed]) -> Iterator[tuple[Place, Place]]:
    """One pair for each place that overlaps an earlier one of another origin."""
    for index, (key, place) in enumerate(group):
        origin = _origin(key, place)
        for other_key, other in group[:index]:
            if _origin(other_key, other) != origin and _overlap(place, other):
                yield place, other
                break


def _overlap(one: Place, other: Place) -> bool:
    """Whether some element of one lies in an element of the other."""
    import numpy as np

    work: Any = _OVERLAP_WORK_MAX  # NumPy takes any int, its stubs do not
    return np.may_share_memory(_at(one), _at(other), max_work=work)


def _at(place: Place) -> NDArray[Any]:
    """An array at a place's address; nothing reads its elements."""
    import numpy as np

    live = place.live
    assert live is not None
    interface = {
        "version": 3, "typestr": f"|V{live.item_bytes}", "shape": live.shape,
        "strides": live.strides, "data": (place.address, True),
    }  # fmt: skip
    return np.asarray(type("_At", (), {"__array_interface__": interface})())
