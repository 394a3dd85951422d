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
