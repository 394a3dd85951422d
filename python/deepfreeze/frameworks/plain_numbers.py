"""Plain numbers and lists of them that were saved in the place of a live tensor or array."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from deepfreeze.state.contracts import Filler
from deepfreeze.state.kinds import kind_of_node
from deepfreeze.state.tree import Node, tag_of

_KINDS = frozenset(map(kind_of_node, (0, False, "", {"$": "complex"}, {"$": "bytes"})))


def is_number(node: Node) -> bool:
    """Whether a node stands for a number, a bool or a text, or for a list or tuple of those."""
    tag = tag_of(node)
    if type(node) is list or tag == "tuple":
        return all(map(is_number, node if tag is None else node["v"]))
    return tag != "blob" and kind_of_node(node) in _KINDS


def made_exactly(
    node: Node, make: Callable[[Any], Any], shape: tuple[int, ...], path: str, plan: Filler
) -> Any:
    """The array of the live `shape` that `make` makes of a stored number or list.

    None, and a mismatch, if the conversion would change a number. One number may fill any array
    that has one element; a list must have the array's shape.
    """
    value = _in_python(plan.decoder.decode(node, path))
    try:
        made = make(value)
        fits = tuple(made.shape) == (shape if isinstance(value, list) else ())
        if fits and math.prod(shape) == math.prod(made.shape) and _are_same(made.tolist(), value):
            return made.reshape(shape)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass  # the dtype has no such values, or the lists are not of one length
    stored = plan.text_of(node)
    plan.unfit(
        path, f"stored {stored}, which the live array can't hold exactly; put a {stored} there"
    )
    return None


def _in_python(value: Any) -> Any:
    if type(value) in (list, tuple):
        return [_in_python(item) for item in value]
    return value.item() if hasattr(value, "item") else value


def _are_same(one: Any, other: Any) -> bool:
    """Whether they are equal as numbers, with NaN and the sign of zero; True is not 1."""
    if isinstance(other, list):
        return len(one) == len(other) and all(map(_are_same, one, other))
    if isinstance(one, complex) and isinstance(other, complex):
        return _are_same(one.real, other.real) and _are_same(one.imag, other.imag)
    if type(one) not in (int, float) or type(other) not in (int, float):
        return type(one) is type(other) and bool(one == other)
    if one != one or other != other:
        return bool(one != one and other != other)
    return bool(one == other) and math.copysign(1, one) == math.copysign(1, other)
