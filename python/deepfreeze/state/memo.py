"""The results of one walk that help the next, which usually finds the same state."""

from __future__ import annotations

from typing import Any

from deepfreeze import _core
from deepfreeze.state.entry import Entry
from deepfreeze.state.tree import Node, check_text, dumps

_PARTS_DEPTH = 3  # "optim", "v", "state": deeper parts are written as a whole


class Memo:
    """The memo of one checkpointer: each Capture reads and replaces it."""

    def __init__(self) -> None:
        self.text = TextMemo()
        self.tensors: Any = None  # these two: the torch adapter's
        self.recalls: Any = None
        # Whether one object's state includes that of an object it holds, by ids: held_objects.py.
        self.held: dict[tuple[int, int], Any] = {}
        self.table: _core.Table | None = None
        self.entries: list[Entry] = []  # of that table


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
