"""Questions about a tree that need no values, such as its names; and parts of a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from deepfreeze.base.names import KeyFilter, join
from deepfreeze.state.decoder import Decoder
from deepfreeze.state.tree import Node, tag_of

_MAPPING_TAGS = frozenset({"dict", "odict", "counter", "defaultdict"})
_SEQUENCE_TAGS = frozenset({"tuple", "set", "frozenset"})
_HEAVY_TAGS = frozenset({"tensor", "array", "object"})
_DROPPED = object()


def _no_leaf(tag: str, _: Node, __: str) -> object:
    raise TypeError(f"a {tag} as a key")


_keys = Decoder(_no_leaf)


def mapping_pairs(node: Node) -> list[tuple[Any, Node]] | None:
    """Keys and nodes of a dict of any kind; None for any other node."""
    if type(node) is not dict:
        return None
    tag = tag_of(node)
    if tag is None:
        return list(node.items())
    if tag not in _MAPPING_TAGS:
        return None
    return [(_keys.decode(key, ""), value) for key, value in node["v"]]


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


def _children(node: Node) -> list[tuple[Any, Node]] | None:
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
    children = None if is_plain(node) else _children(node)
    if children is None:
        yield path
        return
    for key, child in children:
        yield from leaf_names(child, join(path, key))


def pruned(node: Node, path: str, keys: KeyFilter) -> Node:
    """The tree reduced to the filter's choice; in a list, None replaces items not chosen."""
    if keys.chooses_all:
        return node
    kept = _prune(node, path, keys)
    return {} if kept is _DROPPED else kept


def _prune(node: Node, path: str, keys: KeyFilter) -> Node:
    if keys.wants_whole(path) and path:
        return node
    if tag_of(node) == "object":
        inner = _prune(node["v"], path, keys)
        return inner if inner is _DROPPED else {**node, "v": inner}
    children = _children(node)
    if children is None:
        return _DROPPED
    kept = [(key, _prune(child, join(path, key), keys)) for key, child in children]
    if all(child is _DROPPED for _, child in kept):
        return _DROPPED
    return _rebuilt(node, [child for _, child in kept])


def _rebuilt(node: Node, kept: list[Node]) -> Node:
    tag = tag_of(node)
    if tag is None and type(node) is dict:
        pairs = zip(node, kept, strict=True)
        return {key: child for key, child in pairs if child is not _DROPPED}
    if tag in _MAPPING_TAGS:
        pairs = zip(node["v"], kept, strict=True)
        return {**node, "v": [[old[0], child] for old, child in pairs if child is not _DROPPED]}
    items = [None if child is _DROPPED else child for child in kept]
    return items if tag is None else {**node, "v": items}


class Merged:
    """One tree with the names of several; if more than one has a name, the first one counts."""

    def __init__(self, first: Node, others: Iterable[Node]) -> None:
        self.added: set[str] = set()  # names that the first does not have
        self.tree = first
        for other in others:
            self.tree = self._merge(self.tree, other, "")

    def _merge(self, first: Node, other: Node, path: str) -> Node:
        if type(first) is not dict or type(other) is not dict or tag_of(first) != tag_of(other):
            return first
        tag = tag_of(first)
        if tag is None:
            return dict(self._merge_pairs(first.items(), other, path))
        if tag == "object" and first["t"] == other["t"]:
            return {**first, "v": self._merge(first["v"], other["v"], path)}
        if tag not in _MAPPING_TAGS:
            return first
        return {**first, "v": self._merge_tagged(first["v"], other["v"], path)}

    def _merge_tagged(self, first: list[Node], other: list[Node], path: str) -> list[Node]:
        """Merges pairs whose keys are nodes themselves."""
        # Each key is decoded once: a NaN is found again by its identity alone.
        here = [(_keys.decode(key, ""), key, node) for key, node in first]
        there = [(_keys.decode(key, ""), key, node) for key, node in other]
        stored = {key: stored for key, stored, _ in [*there, *here]}
        merged = self._merge_pairs(
            ((key, node) for key, _, node in here), {key: node for key, _, node in there}, path
        )
        return [[stored[key], node] for key, node in merged]

    def _merge_pairs(
        self, first: Iterable[tuple[Any, Node]], other: dict[Any, Node], path: str
    ) -> Iterator[tuple[Any, Node]]:
        left = dict(other)
        for key, node in first:
            own = join(path, key)
            yield key, self._merge(node, left.pop(key), own) if key in left else node
        for key, node in left.items():
            if key == key:  # otherwise it is NaN, and may be the same one
                self.added.add(join(path, key))
                yield key, node
