"""Flax NNX: modules, optimizers, metrics and generators, updated in place.

A variable that several modules share is stored once, by the first path that leads to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flax import nnx  # type: ignore[import-not-found, unused-ignore]

from deepfreeze.adapters.base import Remake
from deepfreeze.matching import match
from deepfreeze.tree import Node, tag_of

if TYPE_CHECKING:
    from deepfreeze.capture import Capture
    from deepfreeze.restore_plan import RestorePlan

KIND = "nnx"


def is_nnx(value: object) -> bool:
    """Whether NNX updates the object in place. An nnx.State is a pytree like any other."""
    return isinstance(value, (nnx.Pytree, nnx.Variable))


def encode_nnx(target: Any, path: str, capture: Capture) -> Node:
    """The node of its variables, or of a variable's value."""
    if isinstance(target, nnx.Variable):
        return capture.encode_part(target.get_raw_value(), path)
    return {"$": "object", "t": KIND, "v": capture.encode_part(_values_of(target), path)}


def match_nnx(node: Node, live: Any, path: str, plan: RestorePlan) -> Remake:
    """Plans an update of the live object."""
    if isinstance(live, nnx.Variable):
        remake = match(node, live.get_raw_value(), path, plan)
        if remake is not None:
            plan.apply(path, lambda: live.set_raw_value(remake()))
        return None
    if tag_of(node) != "object" or node["t"] != KIND:
        plan.mismatch(path, node, f"a {type(live).__qualname__}")
        return None
    values = _values_of(live)
    match(node["v"], values, path, plan)  # plans to put new arrays into `values`
    plan.apply(path, lambda: nnx.update(live, values))
    return None


def _values_of(target: Any) -> dict[Any, Any]:
    values: dict[Any, Any] = nnx.to_pure_dict(nnx.state(target), _value_of)
    return values


def _value_of(leaf: Any) -> Any:
    return leaf.get_raw_value() if isinstance(leaf, nnx.Variable) else leaf
