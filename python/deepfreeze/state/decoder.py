"""Decodes a state tree into values."""

from __future__ import annotations

import base64
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

from deepfreeze.base.names import join, shown
from deepfreeze.errors import CorruptError
from deepfreeze.state.tree import FACTORIES, Node, tag_of


class Decoder:
    """Turns a tree back into values; nodes that are not plain are the leaves' task."""

    def __init__(self, decode_leaf: Callable[[str, Node, str], object]) -> None:
        self._decode_leaf = decode_leaf

    def decode(self, node: Node, path: str) -> Any:
        """The value of `node`; CorruptError if no encoder can have written it."""
        try:
            return self._decode(node, path)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as cause:
            raise CorruptError(f"state tree at {shown(path)}: {cause!r}") from cause

    def _decode(self, node: Node, path: str) -> Any:
        if type(node) is list:
            values = []
            for index, item in enumerate(node):
                nested = type(item) is list or type(item) is dict
                values.append(self._decode(item, join(path, index)) if nested else item)
            return values
        if type(node) is not dict:
            return node
        tag = tag_of(node)
        if tag is not None:
            plain = _PLAIN.get(tag)
            return plain(self, node, path) if plain else self._decode_leaf(tag, node, path)
        mapping = {}
        for key, item in node.items():
            mapping[key] = self._decode(item, join(path, key))
        return mapping

    def items(self, node: Node, path: str) -> list[Any]:
        """The values of a tagged sequence."""
        return [self._decode(item, join(path, index)) for index, item in enumerate(node["v"])]

    def pairs(self, node: Node, path: str) -> list[tuple[Any, Any]]:
        """The keys and values of a tagged mapping."""
        keys = [self._decode(key, path) for key, _ in node["v"]]
        return [
            (key, self._decode(pair[1], join(path, key)))
            for key, pair in zip(keys, node["v"], strict=True)
        ]


def _decode_defaultdict(decoder: Decoder, node: Node, path: str) -> object:
    return defaultdict(FACTORIES[node["f"]], decoder.pairs(node, path))


def _decode_counter(decoder: Decoder, node: Node, path: str) -> object:
    counter: Counter[object] = Counter()
    for key, count in decoder.pairs(node, path):
        counter[key] = count
    return counter


_PLAIN: dict[str, Callable[[Decoder, Node, str], object]] = {
    "int": lambda _, node, __: int(node["v"]),
    "float": lambda _, node, __: float(node["v"]),
    "bytes": lambda _, node, __: base64.b64decode(node["v"], validate=True),
    "complex": lambda d, node, path: complex(
        d.decode(node["re"], path), d.decode(node["im"], path)
    ),
    "tuple": lambda d, node, path: tuple(d.items(node, path)),
    "set": lambda d, node, path: set(d.items(node, path)),
    "frozenset": lambda d, node, path: frozenset(d.items(node, path)),
    "dict": lambda d, node, path: dict(d.pairs(node, path)),
    "odict": lambda d, node, path: OrderedDict(d.pairs(node, path)),
    "counter": _decode_counter,
    "defaultdict": _decode_defaultdict,
}
