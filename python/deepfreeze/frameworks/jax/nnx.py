"""Flax NNX: modules, optimizers, metrics and generators, updated in place.

A variable that several modules share is stored once, by the first path that leads to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flax import nnx  # type: ignore[import-not-found, unused-ignore]

from deepfreeze.base.names import join
from deepfreeze.frameworks.jax.trees import match_child, miss_child
from deepfreeze.state.contracts import Filler, Remake, Sink
from deepfreeze.state.tree import Node, mapping_pairs, tag_of

KIND = "nnx"


def is_nnx(value: object) -> bool:
    """Whether NNX updates the object in place. An nnx.State is a pytree like any other."""
    return isinstance(value, (nnx.Pytree, nnx.Variable))


def encode_nnx(target: Any, path: str, capture: Sink) -> Node:
    """The node of an object's variables, or of a variable's value."""
    if isinstance(target, nnx.Variable):
        return capture.encode_part(target.get_raw_value(), path)
    return {"$": "object", "t": KIND, "v": capture.encode_part(_values_of(target), path)}


def match_nnx(node: Node, live: Any, path: str, plan: Filler) -> Remake:
    """Plans an update of the live object."""
    if isinstance(live, nnx.Variable):
        remake = match_child(node, live.get_raw_value(), path, plan)
        if remake is not None:
            plan.apply(path, lambda: live.set_raw_value(remake()))
        return None
    if tag_of(node) != "object" or node["t"] != KIND:
        plan.mismatch(path, node, f"a {type(live).__qualname__}")
        return None
    values = _values_of(live)
    _match_values(node["v"], values, path, plan)
    plan.apply(path, lambda: nnx.update(live, values))
    return None


def _match_values(node: Node, values: dict[Any, Any], path: str, plan: Filler) -> None:
    """Plans to put new values into `values`, a dict that NNX has made for this."""
    stored = dict(mapping_pairs(node) or ())
    for name, value in values.items():
        place = join(path, name)
        if name not in stored:
            miss_child(value, place, plan)
        elif type(value) is dict and mapping_pairs(stored[name]) is not None:
            _match_values(stored.pop(name), value, place, plan)
        else:
            remake = match_child(stored.pop(name), value, place, plan)
            if remake is not None:
                plan.apply(place, partial(_put, values, name, remake))
    for name, left in stored.items():
        plan.surplus(left, join(path, name))


def _put(values: dict[Any, Any], name: Any, make: Callable[[], Any]) -> None:
    values[name] = make()


def _values_of(target: Any) -> dict[Any, Any]:
    values: dict[Any, Any] = nnx.to_pure_dict(nnx.state(target), _value_of)
    return values


def _value_of(leaf: Any) -> Any:
    return leaf.get_raw_value() if isinstance(leaf, nnx.Variable) else leaf
