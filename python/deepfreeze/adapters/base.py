"""What the framework adapters implement, and what they are given to work with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from deepfreeze.tree import Node

if TYPE_CHECKING:
    from deepfreeze.capture import Capture
    from deepfreeze.plan import Plan


@dataclass(slots=True)
class Entry:
    """An array to store: where its bytes lie, and what keeps them alive."""

    key: str
    dtype: str  # as safetensors names it
    shape: tuple[int, ...]
    logical_dtype: str  # "" where `dtype` is the real one
    address: int
    bytes: int
    owner: object


@dataclass(frozen=True)
class Place:
    """Live memory that a stored entry fills."""

    path: str
    address: int
    bytes: int
    direct: bool  # whether the entry's bytes can be read straight into it
    copy: Callable[[], object]  # fills it from the entry's buffer otherwise


# What a match leaves to do: None where the live value is filled in place, else a function that
# makes the value to put there, to be called once the data has been read.
Remake = Callable[[], Any] | None


class Adapter(Protocol):
    """Stores and fills the values of one framework. One instance serves one save or restore."""

    def claims(self, value: object) -> bool:
        """Whether `value` is this adapter's."""

    def encode(self, value: Any, path: str, capture: Capture) -> Node:
        """The node of a claimed value; EncodeError where it can't be stored."""

    def finish(self, capture: Capture) -> None:
        """After the walk: adds the entries that had to wait for the whole state."""

    def match(self, node: Node, live: Any, path: str, plan: Plan) -> Remake:
        """Plans how the stored `node` gets into the claimed `live` value. Changes nothing yet."""

    def decodes(self, tag: str, node: Node) -> bool:
        """Whether nodes like this are this adapter's to decode."""

    def decode(self, tag: str, node: Node, path: str, plan: Plan) -> object:
        """The value of a node whose data has been read."""

    def environment(self) -> dict[str, str]:
        """Versions and settings without which a resumed run can't be bit-identical."""


def imported(name: str) -> bool:
    """Whether the program uses this framework."""
    return sys.modules.get(name) is not None


def adapters_in_use() -> list[Adapter]:
    """Those of the frameworks that the program has imported, then the one for any object."""
    found: list[Adapter] = []
    if imported("torch"):
        from deepfreeze.adapters.torch import TorchAdapter

        found.append(TorchAdapter())
    if imported("numpy"):
        from deepfreeze.adapters.numpy import NumpyAdapter

        found.append(NumpyAdapter())
    from deepfreeze.adapters.stateful import StatefulAdapter

    found.append(StatefulAdapter())
    return found
