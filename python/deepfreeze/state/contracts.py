"""The interface of the framework adapters, and the data types that they work with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any, Protocol

from deepfreeze.state.tree import Node

if TYPE_CHECKING:
    from deepfreeze.frameworks.tensorflow.adapter import TensorFlowAdapter
    from deepfreeze.restoring.plan import Plan
    from deepfreeze.saving.capture import Capture


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


# The work that a match leaves to do: None if the live value is filled in place, else a function
# that makes the new value, to be called once the data has been read.
Remake = Callable[[], Any] | None


class Adapter(Protocol):
    """Stores and fills the values of one framework. One instance serves one save or restore."""

    def claims(self, value: object) -> bool:
        """Whether `value` is this adapter's."""

    def encode(self, value: Any, path: str, capture: Capture) -> Node:
        """The node of a claimed value; EncodeError if it can't be stored."""

    def direct(self, capture: Capture) -> Mapping[type, Callable[[Any, str], Node]]:
        """encode() by type, for types of which a state has thousands."""

    def recall(self, mapping: dict[Any, Any], path: str) -> Node | None:
        """The node of a dict that note() was given in the last walk, if the dict is unchanged."""

    def note(self, mapping: dict[Any, Any], path: str, node: Node) -> None:
        """Told that a dict has been encoded to this node."""

    def finish(self, capture: Capture) -> None:
        """Called after the walk: adds the entries that needed the whole state."""

    def match(self, node: Node, live: Any, path: str, plan: Plan) -> Remake:
        """Plans how the live `value` takes the stored `node`. Changes nothing yet."""

    def decodes(self, tag: str, node: Node) -> bool:
        """Whether this adapter decodes nodes like this."""

    def decode(self, tag: str, node: Node, path: str, plan: Plan) -> object:
        """Decodes a node whose data has been read."""

    def environment(self) -> dict[str, str]:
        """Versions and settings that a resumed run needs to be bit-identical."""


def imported(name: str) -> bool:
    """Whether the program has imported this framework."""
    return sys.modules.get(name) is not None


def adapters_in_use() -> list[Adapter]:
    """The adapters of the frameworks that the program has imported, then the one for any object."""
    found: list[Adapter] = []
    share: Callable[[Any, Node, str], bool] | None = None
    tensorflow: TensorFlowAdapter | None = None
    if imported("tensorflow"):
        from deepfreeze.frameworks.tensorflow.adapter import TensorFlowAdapter

        found.append(tensorflow := TensorFlowAdapter())
    if imported("keras"):  # before its backends, which would claim its models too
        from deepfreeze.frameworks.keras.adapter import KerasAdapter

        found.insert(0, KerasAdapter(tensorflow))
    if imported("torch"):
        from deepfreeze.frameworks.torch.adapter import TorchAdapter

        found.append(torch_adapter := TorchAdapter())
        share = torch_adapter.share_array
    if imported("numpy"):
        from deepfreeze.frameworks.numpy import NumpyAdapter

        found.append(NumpyAdapter(share))
    if imported("chainer"):
        from deepfreeze.frameworks.chainer.adapter import ChainerAdapter

        found.append(ChainerAdapter())
    if imported("jax"):
        from deepfreeze.frameworks.jax.adapter import JaxAdapter

        found.append(JaxAdapter())
    from deepfreeze.frameworks.stateful import StatefulAdapter

    found.append(StatefulAdapter())
    return found
