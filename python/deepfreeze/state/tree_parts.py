"""Parts of a tree that a caller chooses, and one tree made of several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from deepfreeze.base.names import KeyFilter, join
from deepfreeze.state.tree import KEYS, MAPPING_TAGS, Node, children, tag_of

_DROPPED = object()


def pruned(node: Node, path: str, keys: KeyFilter) -> Node:
    """The tree reduced to the filter's choice; in a list, None replaces items not chosen."""
    if keys.chooses_all:
        return node
    kept = _prune(node, path, keys)
    return {} if kept is _DROPPED else kept


def _prune(node: Node, path: str, keys: KeyFilter) -> Node:
    if path and not keys.may_want_within(path):
        return _DROPPED
    if keys.wants_whole(path) and path:
        return node
    if tag_of(node) == "object":
        inner = _prune(node["v"], path, keys)
        return inner if inner is _DROPPED else {**node, "v": inner}
    inner = children(node)
    if inner is None:
        return _DROPPED
    kept = [(key, _prune(child, join(path, key), keys)) for key, child in inner]
    if all(child is _DROPPED for _, child in kept):
        return _DROPPED
    return _rebuilt(node, [child for _, child in kept])


def _rebuilt(node: Node, kept: list[Node]) -> Node:
    tag = tag_of(node)
    if tag is None and type(node) is dict:
        pairs = zip(node, kept, strict=True)
        return {key: child for key, child in pairs if child is not _DROPPED}
    if tag in MAPPING_TAGS:
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
        if tag not in MAPPING_TAGS:
            return first
        return {**first, "v": self._merge_tagged(first["v"], other["v"], path)}

    def _merge_tagged(self, first: list[Node], other: list[Node], path: str) -> list[Node]:
        """Merges pairs whose keys are nodes themselves."""
        # Each key is decoded once: a NaN is found again by its identity alone.
        here = [(KEYS.decode(key, ""), key, node) for key, node in first]
        there = [(KEYS.decode(key, ""), key, node) for key, node in other]
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
