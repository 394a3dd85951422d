"""Encodes values as a state tree, and the tree as text."""

from __future__ import annotations

import base64
import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from deepfreeze.base.arguments import is_unicode
from deepfreeze.base.names import escaped, join, shown
from deepfreeze.errors import EncodeError
from deepfreeze.state.tree import FACTORIES, TEXT_BYTES_MAX, Node, is_plain

DEPTH_MAX = 200  # nested JSON values: to match them takes several frames for each
NODES_MAX = 1 << 23  # items of lists and dicts, tensors among them
INLINE_BYTES_MAX = 4096  # longer bytes become an entry of their own
_LARGE = 16  # from so many items on it pays to recognise a dict
_INT_MAX = 1 << 53  # beyond it a JSON reader may round
_PARTS_DEPTH = 3  # "optim", "v", "state": deeper parts are written as a whole


class Leaves(Protocol):
    """The methods that an encoder calls for values that are not plain."""

    def encode_leaf(self, value: object, path: str) -> Node:
        """The node of `value`, or EncodeError."""

    def store_bytes(self, data: bytes, path: str) -> str:
        """Makes `data` an entry and returns its key."""

    def recall(self, mapping: dict[Any, Any], path: str) -> Node | None:
        """The node of a large dict, if it is known from the last walk."""

    def note(self, mapping: dict[Any, Any], path: str, node: Node) -> None:
        """Notes a large dict's node for the next walk."""

    @property
    def direct(self) -> Mapping[type, Callable[[Any, str], Node]]:
        """encode_leaf() by type, for types of which a state has thousands."""


def _int(value: int) -> Node:
    return value if -_INT_MAX <= value <= _INT_MAX else {"$": "int", "v": str(value)}


def _float(value: float) -> Node:
    if value - value == 0.0:
        return value
    return {"$": "float", "v": "nan" if value != value else "inf" if value > 0 else "-inf"}


def _str(value: str) -> Node:
    if not value.isascii():
        value.encode()  # a lone surrogate has no UTF-8
    return value


def _itself(value: object) -> Node:
    return value


_ATOMS: dict[type, Callable[[Any], Node]] = {
    type(None): _itself,
    bool: _itself,
    int: _int,
    float: _float,
    str: _str,
}


class Encoder:
    """Turns one state into a tree; exact types only, so that nothing changes its type."""

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        self._direct = leaves.direct
        self._depth = 0
        self._nodes = 0

    # One frame per level of lists and dicts.
    def encode(self, value: Any, path: str) -> Node:
        """The node of `value`, which messages call `path`."""
        kind = type(value)
        atom = _ATOMS.get(kind)
        if atom is not None:
            return self._atom(atom, value, path)
        self._depth += 1
        self._nodes += len(value) if kind in _SIZED else 1
        if self._depth > DEPTH_MAX:
            raise EncodeError(f"{shown(path)[:200]}: nested more than {DEPTH_MAX} deep")
        if self._nodes > NODES_MAX:
            raise EncodeError(f"{shown(path)[:200]}: more than {NODES_MAX} values")
        node: Node
        is_large = kind in _NAMED and len(value) >= _LARGE
        known = self._leaves.recall(value, path) if is_large else None
        if known is not None:
            node = known
        elif kind is list:
            node = []
            within = f"{path}." if path else ""
            for index, item in enumerate(value):
                atom = _ATOMS.get(type(item))
                if atom is None:
                    node.append(self.encode(item, f"{within}{index}"))
                else:
                    node.append(self._atom(atom, item, path, index))
        elif kind is dict and _is_plain_object(value):
            node = {}
            direct, within = self._direct, f"{path}." if path else ""
            for key, item in value.items():
                leaf = direct.get(type(item)) or self.encode
                # As join(), which would be called for thousands of tensors.
                place = within + (key if key.isidentifier() else escaped(key))
                node[key] = leaf(item, place)
        else:
            self._depth += 2  # the object around it, and its list of pairs
            node = self._tagged(kind, value, path)
            self._depth -= 2
        if is_large and known is None:
            self._leaves.note(value, path, node)
        self._depth -= 1
        return node

    def _atom(self, atom: Callable[[Any], Node], value: Any, path: str, key: object = None) -> Node:
        try:
            return atom(value)
        except ValueError as cause:  # a surrogate, or an int beyond Python's own digits limit
            place = shown(path if key is None else join(path, key))
            raise EncodeError(f"{place}: {cause}") from cause

    def _tagged(self, kind: type, value: Any, path: str) -> Node:
        if kind is tuple:
            return {"$": "tuple", "v": self.items(value, path)}
        if kind in _PAIRS:
            return {"$": _PAIRS[kind], **_factory_of(value, path), "v": self.pairs(value, path)}
        if kind in (set, frozenset):
            return {"$": kind.__name__, "v": self._members(value, path)}
        if kind is bytes:
            return self._bytes(value, path)
        if kind is complex:
            return {"$": "complex", "re": _float(value.real), "im": _float(value.imag)}
        return self._leaves.encode_leaf(value, path)

    def items(self, values: Iterable[object], path: str) -> list[Node]:
        """The nodes of `values`."""
        return [self.encode(value, join(path, index)) for index, value in enumerate(values)]

    def _members(self, values: Iterable[object], path: str) -> list[Node]:
        nodes = self.items(values, path)
        if not is_plain(nodes):  # told apart by identity alone, they could not be restored
            raise EncodeError(
                f"{shown(path)[:200]}: a set of more than plain values can't be stored"
            )
        return sorted(nodes, key=json.dumps)

    def pairs(self, mapping: dict[object, object], path: str) -> list[Node]:
        """The nodes of a mapping's keys and values."""
        return [
            [self._key(key, join(path, key)), self.encode(value, join(path, key))]
            for key, value in mapping.items()
        ]

    def _key(self, key: object, path: str) -> Node:
        if _is_key(key):
            return self.encode(key, path)
        raise EncodeError(
            f"{shown(path)[:200]}: a {type(key).__module__}.{type(key).__qualname__} can't be "
            "stored as a key of a dict; use a str, a number, short bytes, or a tuple of those"
        )

    def _bytes(self, value: bytes, path: str) -> Node:
        if len(value) > INLINE_BYTES_MAX:
            return {"$": "blob", "k": self._leaves.store_bytes(value, path)}
        return {"$": "bytes", "v": base64.b64encode(value).decode()}


_PAIRS: dict[type, str] = {
    dict: "dict",
    OrderedDict: "odict",
    Counter: "counter",
    defaultdict: "defaultdict",
}
_NAMED = frozenset({dict, OrderedDict})
_KEYS = frozenset({*_ATOMS, complex})  # and what _is_key names: found again without a framework
_SIZED = frozenset({list, tuple, set, frozenset, *_PAIRS})


def _is_key(key: object) -> bool:
    if isinstance(key, (tuple, frozenset)) and type(key) in (tuple, frozenset):
        return all(_is_key(item) for item in key)
    if isinstance(key, bytes) and type(key) is bytes:
        return len(key) <= INLINE_BYTES_MAX
    return type(key) in _KEYS


def _is_plain_object(mapping: dict[object, object]) -> bool:
    for key in mapping:
        if type(key) is not str or key == "$" or not (key.isascii() or is_unicode(key)):
            return False  # it is encoded as a value, which names the place
    return True


def _factory_of(value: object, path: str) -> dict[str, Node]:
    if not isinstance(value, defaultdict):
        return {}
    for name, factory in FACTORIES.items():
        if value.default_factory is factory:
            return {"f": name}
    raise EncodeError(
        f"{shown(path)}: a defaultdict of {value.default_factory!r} can't be stored; "
        f"its factory must be one of {', '.join(FACTORIES)}"
    )


# Text

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
