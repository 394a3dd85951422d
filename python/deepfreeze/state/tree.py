"""The state tree as tagged JSON: exact, in order, without pickle and without any framework.

A plain JSON value stands for itself. Any other value is an object whose first member is "$".
Here trees are read: from text to nodes, from nodes to values, and questions that need no values.
"""

from __future__ import annotations

import base64
import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from deepfreeze.base.names import join, shown
from deepfreeze.errors import CorruptError

Node: TypeAlias = Any  # None, bool, int, float, str, list of nodes, or dict of nodes

TEXT_BYTES_MAX = 256 << 20
MAPPING_TAGS = frozenset({"dict", "odict", "counter", "defaultdict"})
_HEAVY_TAGS = frozenset({"tensor", "array", "object"})

# The factories of defaultdicts that can be stored.
FACTORIES: dict[str, Callable[[], object] | None] = {
    "int": int, "float": float, "str": str, "list": list, "dict": dict, "set": set, "none": None,
}  # fmt: skip


def loads(text: str) -> Node:
    """The tree of a text in a checkpoint; CorruptError if the text is no tree."""
    if len(text) > TEXT_BYTES_MAX:
        raise CorruptError(f"state tree: more than {TEXT_BYTES_MAX} bytes")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as cause:
        raise CorruptError(f"state tree: {cause}") from cause


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def tag_of(node: Node) -> str | None:
    """The tag of a node; None for a plain JSON value."""
    if type(node) is dict and node and next(iter(node)) == "$":
        return str(node["$"])
    return None


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


# Questions


def _no_leaf(tag: str, _: Node, __: str) -> object:
    raise TypeError(f"a {tag} as a key")


KEYS = Decoder(_no_leaf)  # of mappings


def mapping_pairs(node: Node) -> list[tuple[Any, Node]] | None:
    """Keys and nodes of a dict of any kind; None for any other node."""
    if type(node) is not dict:
        return None
    tag = tag_of(node)
    if tag is None:
        return list(node.items())
    if tag not in MAPPING_TAGS:
        return None
    return [(KEYS.decode(key, ""), value) for key, value in node["v"]]


def sequence_items(node: Node, kind: type) -> list[Node] | None:
    """The nodes of a list or tuple; None for any other node."""
    if kind is list:
        return node if type(node) is list else None
    return list(node["v"]) if tag_of(node) == "tuple" else None


def tagged_nodes(node: Node) -> Iterator[Node]:
    """All tagged nodes of a tree, this one among them."""
    todo = [node]
    while todo:
        node = todo.pop()
        if type(node) is list:
            todo.extend(item for item in node if type(item) in (list, dict))
        elif type(node) is dict:
            if tag_of(node) is not None:
                yield node
            todo.extend(item for item in node.values() if type(item) in (list, dict))


def is_plain(node: Node) -> bool:
    """Whether the tree has no tensor, array or object."""
    return not any(inner["$"] in _HEAVY_TAGS for inner in tagged_nodes(node))


def has_objects(node: Node) -> bool:
    """Whether the tree has an object, which only a live object can take."""
    return any(inner["$"] == "object" for inner in tagged_nodes(node))


def children(node: Node) -> list[tuple[Any, Node]] | None:
    """Keys and nodes within a mapping, list or tuple; None for any other node."""
    pairs = mapping_pairs(node)
    if pairs is not None:
        return pairs
    if type(node) is list:
        return list(enumerate(node))
    return list(enumerate(node["v"])) if tag_of(node) == "tuple" else None


def leaf_names(node: Node, path: str) -> Iterator[str]:
    """The names of the values in a tree; a plain part counts as one."""
    if tag_of(node) == "object":
        node = node["v"]
    inner = None if is_plain(node) else children(node)
    if inner is None:
        yield path
        return
    for key, child in inner:
        yield from leaf_names(child, join(path, key))
