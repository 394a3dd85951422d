"""Kinds of values, live and stored: whether one may become the other, and their texts."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from math import prod
from typing import Any

from deepfreeze.state.dtypes import Shape
from deepfreeze.state.registry import REGISTERED
from deepfreeze.state.tree import Node, tag_of

MAPPINGS = (dict, OrderedDict, Counter, defaultdict)
ATOMS = frozenset({int, float, str, bool, type(None), bytes, complex})

_SEQUENCES = (list, tuple, deque)
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
# Kinds that mean the same as another. A live list, set or bytearray takes only its own kind, as it
# keeps its identity; a tuple may be replaced, because nobody can tell that it is another object.
_LIKE = {
    "tuple": {"list", "collections.deque", "size"}, "size": {"list", "tuple"},
    "frozenset": {"set"}, "bytes": {"bytearray"},
}  # fmt: skip
_LETTER_KINDS = {
    "i": _NUMBER, "u": _NUMBER, "f": _NUMBER, "b": "bool", "c": "complex", "U": "str", "S": "bytes",
}  # fmt: skip
_NUMBER_DTYPES = ("int", "uint", "float", "bfloat")


def kind_of_live(live: Any) -> str:
    """The kind of a live value; all numbers are of one kind, and so are all mappings."""
    known = REGISTERED.get(type(live))
    if known is not None:
        return known.name
    if _is_instance(live, "numpy", "generic"):
        return _kind_of_dtype(live.dtype.name if live.dtype.kind == "V" else live.dtype.str)
    if is_detail(live):
        return type(live).__name__.lower()
    return _KINDS.get(type(live), type(live).__name__)


def kind_of_node(node: Node) -> str:
    """The kind of the value that a node stands for, in the same words."""
    tag = tag_of(node)
    if tag is None:
        return _KINDS.get(type(node), type(node).__name__)
    if tag == "ext":
        return str(node["t"])
    if tag == "np":
        return _kind_of_dtype(str(node["d"]))
    return _TAG_KINDS.get(tag, tag)


def _kind_of_dtype(dtype: str) -> str:
    """The kind of one element; all numbers are of one kind, and so are texts of any length."""
    if dtype[:1] in ("<", ">", "|", "="):  # written by NumPy
        return _LETTER_KINDS.get(dtype[1:2], dtype)
    if dtype.startswith(_NUMBER_DTYPES):
        return _NUMBER
    return "complex" if dtype.startswith("complex") else dtype


def may_replace(node: Node, live: Any) -> bool:
    """Whether a plain live value may become the value of a node that is no array.

    Both must be of the same kind, or of kinds that mean the same. None takes and gives any value.
    """
    there, here = kind_of_node(node), kind_of_live(live)
    return there == here or there in _LIKE.get(here, ()) or "None" in (there, here)


def array_may_replace(dtype: str, shape: Shape, live: Any) -> bool:
    """Whether a plain live value may become a stored array.

    A number, bool or text may become an array with one element of its kind; a list of those, or an
    empty list, may become an array of one dimension or more.
    """
    if live is None:
        return True
    kind = _kind_of_dtype(dtype)
    if isinstance(live, _SEQUENCES):
        return len(shape) > 0 and all(each == kind for each in _element_kinds(live))
    return prod(shape) == 1 and kind_of_live(live) == kind


def _element_kinds(live: Any) -> Iterator[str]:
    for value in live:
        if isinstance(value, _SEQUENCES):
            yield from _element_kinds(value)
        else:
            yield kind_of_live(value)


def text_of_live(live: Any) -> str:
    """A live value, in the words of messages."""
    name = type(live).__qualname__
    article = "an" if name[:1] in tuple("aeio") else "a"
    size = f" of {len(live)}" if type(live) in (*_SEQUENCES, *MAPPINGS, set, frozenset) else ""
    return "None" if live is None else f"{article} {name}{size}"


_TAG_TEXTS = {
    "odict": "OrderedDict", "counter": "Counter", "blob": "bytes", "size": "torch.Size",
    "dtype": "torch.dtype", "device": "torch.device",
}  # fmt: skip


def text_of_node(node: Node) -> str:
    """The value of a node that is no array, in the words of messages."""
    tag = tag_of(node)
    if tag in ("object", "ext"):
        return str(node["t"])
    if tag == "np":
        return f"NumPy scalar {node['d']}"
    name = type(node).__name__ if tag is None else _TAG_TEXTS.get(tag, tag)
    items = node if tag is None else node.get("v")
    size = f" of {len(items)}" if isinstance(items, (list, dict)) and tag != "size" else ""
    return "None" if node is None else f"{name}{size}"


def form_text(form: tuple[str, Shape]) -> str:
    """A dtype and a shape, in the words of messages."""
    return f"{form[0]}{list(form[1])}"


def _is_instance(value: object, module: str, *names: str) -> bool:
    found = sys.modules.get(module)
    return found is not None and any(isinstance(value, getattr(found, name)) for name in names)


def is_detail(value: object) -> bool:
    """Whether it is a small immutable value of a framework, which counts as plain."""
    if type(value) in ATOMS:
        return False
    return _is_instance(value, "numpy", "generic") or _is_instance(
        value, "torch", "Size", "dtype", "device"
    )
