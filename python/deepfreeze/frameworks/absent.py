"""Decodes values of frameworks that the program has not imported, as NumPy's or plain ones."""

from __future__ import annotations

from typing import Any

from deepfreeze.state.contracts import Adapter, Filler, Remake, Sink, Source
from deepfreeze.state.dtypes import Shape
from deepfreeze.state.entry import Buffer
from deepfreeze.state.tree import Node


class AbsentAdapter(Adapter):
    """The last of all adapters: it claims no live value."""

    def claims(self, value: object) -> bool:
        return False

    def encode(self, value: Any, path: str, capture: Sink) -> Node:
        raise NotImplementedError

    def match(self, node: Node, live: Any, path: str, plan: Filler) -> Remake:
        raise NotImplementedError

    def allocate(self, name: str, shape: Shape, size: int) -> Buffer | None:
        from deepfreeze.frameworks.numpy import allocate

        return allocate(size)

    def decodes(self, tag: str, node: Node) -> bool:
        return tag in ("array", "np", "tensor", "size", "dtype", "device")

    def decode(self, tag: str, node: Node, path: str, plan: Source) -> object:
        if tag == "size":
            return tuple(int(size) for size in node["v"])
        if tag in ("dtype", "device"):
            return str(node["v"])
        from deepfreeze.frameworks.numpy import NumpyAdapter

        return NumpyAdapter().decode(tag, node, path, plan)
