"""Kinds of values, live and stored: whether one may become the other."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict
from typing import Any

from deepfreeze.registry import registered_for
from deepfreeze.tree import Node, tag_of

MAPPINGS = (dict, OrderedDict, Counter, defaultdict)
ATOMS = frozenset({int, float, str, bool, type(None), bytes, complex})

_NUMBER = "a number"
_KINDS: dict[type, str] = {
    **dict.fromkeys(MAPPINGS, "dict"),
    int: _NUMBER,
    float: _NUMBER,
    type(None): "None",
}
_TAG_KINDS = {
    "odict": "dict", "counter": "dict", "defaultdict": "dict",
    "int": _NUMBER, "float": _NUMBER, "blob": "bytes",
}  # fmt: skip


def kind_of_live(live: Any) -> str:
    """The kind of a live value; all numbers have one, and so have all mappings."""
    known = registered_for(live)
    if known is not None:
        return known.name
    if _is_instance(live, "numpy", "generic"):
        return _numpy_kind(live.dtype.name if live.dtype.kind == "V" else live.dtype.str)
    if is_detail(live):
        return type(live).__name__.lower()
    return _KINDS.get(type(live), type(live).__name__)


def kind_of_node(node: Node) -> str:
    """The kind of the value that a node stands for, by the same names."""
    tag = tag_of(node)
    if tag is None:
        return _KINDS.get(type(node), type(node).__name__)
    if tag == "ext":
        return str(node["t"])
    if tag == "np":
        return _numpy_kind(str(node["d"]))
    return _TAG_KINDS.get(tag, tag)


def _numpy_kind(dtype: str) -> str:
    """All numbers are of one kind, and texts of any length."""
    letter = dtype[1:2]
    if letter in ("i", "u", "f"):
        return _NUMBER
    return letter if letter in ("S", "U") else dtype


def _is_instance(value: object, module: str, *names: str) -> bool:
    found = sys.modules.get(module)
    return found is not None and any(isinstance(value, getattr(found, name)) for name in names)


def is_detail(value: object) -> bool:
    """Small immutable values of the frameworks, which count as plain."""
    if type(value) in ATOMS:
        return False
    return _is_instance(value, "numpy", "generic") or _is_instance(
        value, "torch", "Size", "dtype", "device"
    )
