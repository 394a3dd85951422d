"""The state tree as tagged JSON: exact, in order, without pickle and without any framework.

A plain JSON value stands for itself. Any other value is an object whose first member is "$".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from deepfreeze.errors import CorruptError, EncodeError

Node: TypeAlias = Any  # None, bool, int, float, str, list of nodes, or dict of nodes

TEXT_BYTES_MAX = 256 << 20
_PARTS_DEPTH = 3  # "optim", "v", "state": deeper parts are written as a whole

# The factories of defaultdicts that can be stored.
FACTORIES: dict[str, Callable[[], object] | None] = {
    "int": int, "float": float, "str": str, "list": list, "dict": dict, "set": set, "none": None,
}  # fmt: skip


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def dumps(node: Node) -> str:
    """The text of a tree."""
    try:
        text = _ENCODER.encode(node)
    except RecursionError as cause:
        raise EncodeError("the state: nested too deep for the stack that is left") from cause
    check_text(text)
    return text


def check_text(text: str) -> None:
    """EncodeError if the text of a tree is too long to be stored."""
    size = len(text) if text.isascii() else len(text.encode())
    if size > TEXT_BYTES_MAX:
        raise EncodeError(
            f"the state: its plain values need {size} bytes of text, more than "
            f"{TEXT_BYTES_MAX}; keep long lists of numbers in arrays"
        )


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


class TextMemo:
    """Writes a tree as text, and re-uses the text of parts that have not changed."""

    def __init__(self) -> None:
        self._node: Node = None
        self._text = ""
        self._parts: dict[str, TextMemo] = {}

    def dumps(self, node: Node) -> str:
        """The text that tree.dumps() gives."""
        text = self._dumps(node, _PARTS_DEPTH)
        check_text(text)
        return text

    def _dumps(self, node: Node, depth: int) -> str:
        if not (self._text and _is_the_same(node, self._node)):
            self._text = ""  # an error must not leave the text of another node
            divided = depth and type(node) is dict and any(map(_is_container, node.values()))
            self._text = self._joined(node, depth) if divided else dumps(node)
            self._node = node
        return self._text

    def _joined(self, node: dict[str, Node], depth: int) -> str:
        parts: dict[str, TextMemo] = {}
        texts = []
        for key, child in node.items():
            part = parts[key] = self._parts.get(key) or TextMemo()
            texts.append(dumps(key) + ":" + part._dumps(child, depth - 1))
        self._parts = parts
        return "{" + ",".join(texts) + "}"


def _is_container(node: Node) -> bool:
    return type(node) is dict and node.get("$") != "tensor"


def _is_the_same(one: Node, other: Node) -> bool:
    try:
        return _same(one, other)
    except RecursionError:
        return False  # nested too deep for the stack that is left: dumps() says so, if it must


def _same(one: Node, other: Node) -> bool:
    """Whether two nodes have the same text. Equality is not enough: 1 equals True and 1.0."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is dict:
        if one.get("$") == "tensor":
            return bool(one == other)  # strings, and ints in its view
        return list(one) == list(other) and all(map(_same, one.values(), other.values()))
    if kind is list:
        return len(one) == len(other) and all(map(_same, one, other))
    if kind is float:
        return repr(one) == repr(other)
    return bool(one == other)
