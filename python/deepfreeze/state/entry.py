"""Arrays to store, live memory to fill, and buffers between: where their bytes lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any

from deepfreeze.state.tree import Node

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOST = -1  # no device: the engine's mark of host memory


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


@dataclass(frozen=True)
class Layout:
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


@dataclass(frozen=True)
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
