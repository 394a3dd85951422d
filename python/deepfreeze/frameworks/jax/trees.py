"""Pytree objects: NamedTuples, Flax's dataclasses and FrozenDicts, Equinox's modules, Partials.

Their children are stored by name. Data that the class gives JAX as auxiliary is code or static; it
stays the live object's, and so do functions among the children.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import tree_util  # type: ignore[import-not-found, unused-ignore]

from deepfreeze.base.names import join, shown
from deepfreeze.errors import EncodeError
from deepfreeze.frameworks.jax.arrays import ANYWHERE, remade
from deepfreeze.frameworks.stateful import is_stateful
from deepfreeze.state.contracts import Filler, Remake, Sink
from deepfreeze.state.kinds import MAPPINGS
from deepfreeze.state.registry import REGISTERED
from deepfreeze.state.tree import Node, is_plain, mapping_pairs, sequence_items, tag_of

KIND = "pytree"
_CONTAINERS = (dict, OrderedDict, defaultdict, list, tuple)  # the state tree has these types
_NUMBERS = (bool, int, float, complex, np.number, np.bool_)


def is_tree(value: object) -> bool:
    """Whether JAX takes `value` apart, and no other adapter stores it."""
    kind = type(value)
    if kind in (*MAPPINGS, list, tuple) or kind in REGISTERED or is_stateful(value):
        return False
    return not tree_util.all_leaves([value])


def _children(tree: Any, path: str) -> tuple[dict[Any, Any], Any]:
    """The children of one level by name, and the structure that puts them together again."""
    pairs, structure = tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is not tree)
    named = {_name_of(keys[0]): child for keys, child in pairs}
    if len(named) != len(pairs):
        raise EncodeError(f"{shown(path)}: children of a {type(tree).__qualname__} share a name")
    return named, structure


def _name_of(key: Any) -> Any:
    attributes = ("name", "key", "idx")
    named = (getattr(key, name) for name in attributes if hasattr(key, name))
    return next(named, str(key))  # a class may give keys of any kind


def _is_code(value: object) -> bool:
    return callable(value) and not is_stateful(value) and tree_util.all_leaves([value])


def encode_tree(tree: Any, path: str, capture: Sink) -> Node:
    """The node of a pytree object."""
    named, _ = _children(tree, path)
    stored = {name: child for name, child in named.items() if not _is_code(child)}
    return {"$": "object", "t": KIND, "v": capture.encode_part(stored, path)}


def match_tree(node: Node, live: Any, path: str, plan: Filler) -> Remake:
    """Plans a new object of the same class and auxiliary data, if a child is new."""
    stored = _stored_children(node, live)
    if stored is None:
        plan.mismatch(path, node, f"a {type(live).__qualname__}")
        return None
    named, structure = _children(live, path)
    remakes: dict[Any, Callable[[], Any]] = {}
    for name, child in named.items():
        if name not in stored:
            miss_child(child, join(path, name), plan)
            continue
        remake = match_child(stored.pop(name), child, join(path, name), plan)
        if remake is not None:
            remakes[name] = remake
    for name, left in stored.items():
        plan.surplus(left, join(path, name))
    if not remakes:
        return None
    return lambda: structure.unflatten(
        [remakes[name]() if name in remakes else child for name, child in named.items()]
    )


def miss_child(child: Any, path: str, plan: Filler) -> None:
    """Notes the parts of a live child that the checkpoint lacks."""
    for name in [] if _is_code(child) else plan.live_names(child, path):
        plan.miss(name)


def _stored_children(node: Node, live: Any) -> dict[Any, Node] | None:
    if type(live) in (list, tuple):
        items = sequence_items(node, type(live))
        return None if items is None else dict(enumerate(items))
    if type(live) not in _CONTAINERS:
        if tag_of(node) != "object" or node["t"] != KIND:
            return None
        node = node["v"]
    pairs = mapping_pairs(node)
    return None if pairs is None else dict(pairs)


def match_child(node: Node, live: Any, path: str, plan: Filler) -> Remake:
    """As plan.match(), but makes a container anew: other objects often contain the same one."""
    if type(live) in _CONTAINERS and live and not is_plain(node):
        return match_tree(node, live, path, plan)
    if isinstance(live, _NUMBERS) and tag_of(node) == "array":
        return _match_number(node, live, path, plan)
    return plan.match(node, live, path)


def _match_number(node: Node, live: Any, path: str, plan: Filler) -> Remake:
    """A step counter is a number at first, and an array once a jitted call has counted it."""
    if not plan.keys.wants(path):
        return None
    if plan.form_of(node["k"])[1] != ():
        plan.mismatch(path, node, f"a {type(live).__qualname__}")
        return None
    return remade(node, ANYWHERE, path, plan)
