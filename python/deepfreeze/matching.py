"""Brings a tree and a live state together: which stored node goes into which live place."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from typing import Any

from deepfreeze.adapters.base import Remake
from deepfreeze.errors import MismatchError
from deepfreeze.names import join
from deepfreeze.plan import Plan
from deepfreeze.registry import registered_for
from deepfreeze.tree import Node, tag_of
from deepfreeze.walk import has_objects, is_plain, mapping_pairs, sequence_items

_MAPPINGS = (dict, OrderedDict, Counter, defaultdict)


def match_state(node: Node, state: Any, plan: Plan) -> None:
    """Plans the restore of a whole state, which must be a dict or a list."""
    pairs = mapping_pairs(node)
    if pairs is not None and type(state) in _MAPPINGS:
        _match_pairs(pairs, state, "", plan)
        return
    items = sequence_items(node, list)
    if items is not None and type(state) is list:
        _match_items(items, state, "", plan)
        return
    raise MismatchError(
        f"the state is a {type(state).__qualname__}, the checkpoint's is of another kind; "
        "only a dict or a list can be restored into"
    )


def match(node: Node, live: Any, path: str, plan: Plan) -> Remake:
    """Plans how `node` gets into `live`; see Remake for what is left to the caller."""
    if live is None or (type(live) in (*_MAPPINGS, list) and not live):
        return _match_empty(node, live, path, plan)
    for adapter in plan.adapters:
        if adapter.claims(live):
            return adapter.match(node, live, path, plan)
    whole = plan.keys.chooses_all or plan.keys.wants_whole(path)
    if not (whole and is_plain(node) and _is_plain_value(live, plan)):
        pairs = mapping_pairs(node)
        if pairs is not None and type(live) in _MAPPINGS:
            _match_pairs(pairs, live, path, plan)
            return None
        items = sequence_items(node, type(live)) if type(live) in (list, tuple) else None
        if items is not None and type(live) is list:
            _match_items(items, live, path, plan)
            return None
        if items is not None:
            return _match_tuple(items, live, path, plan)
    return _match_value(node, live, path, plan)


def _match_empty(node: Node, live: Any, path: str, plan: Plan) -> Remake:
    """None and an empty container take whatever was saved in their place."""
    if not plan.keys.wants_whole(path):
        return None
    if has_objects(node):
        plan.surplus(node, path)
        return None
    return _in_container(node, live, path, plan)


def _match_value(node: Node, live: Any, path: str, plan: Plan) -> Remake:
    if not plan.keys.wants_whole(path):
        return None
    known = registered_for(live)
    same_type = known is not None and tag_of(node) == "ext" and node["t"] == known.name
    if not same_type and not (is_plain(node) and _is_plain_value(live, plan)):
        plan.mismatch(path, node, f"a {type(live).__qualname__}")
        return None
    return _in_container(node, live, path, plan)


def _in_container(node: Node, live: Any, path: str, plan: Plan) -> Remake:
    """The value anew, but a list or dict keeps its identity: others may hold it."""
    make = plan.fresh(node, path)
    if type(live) in _MAPPINGS and mapping_pairs(node) is not None:
        plan.apply(path, lambda: _replace_mapping(live, make()))
        return None
    if type(live) is list and type(node) is list:
        plan.apply(path, lambda: live.__setitem__(slice(None), make()))
        return None
    return make


def _replace_mapping(live: dict[Any, Any], value: dict[Any, Any]) -> None:
    live.clear()
    dict.update(live, value)  # a Counter's own update would add


def _match_pairs(
    pairs: list[tuple[Any, Node]], live: dict[Any, Any], path: str, plan: Plan
) -> None:
    stored = dict(pairs)
    for key, value in live.items():
        if key not in stored:
            _miss(value, join(path, key), plan)
            continue
        remake = match(stored.pop(key), value, join(path, key), plan)
        if remake is not None:
            _put(live, key, remake, join(path, key), plan)
    for key, node in stored.items():
        plan.surplus(node, join(path, key))


def _match_items(items: list[Node], live: list[Any], path: str, plan: Plan) -> None:
    for index, value in enumerate(live[: len(items)]):
        remake = match(items[index], value, join(path, index), plan)
        if remake is not None:
            _put(live, index, remake, join(path, index), plan)
    for index in range(len(items), len(live)):
        _miss(live[index], join(path, index), plan)
    for index in range(len(live), len(items)):
        plan.surplus(items[index], join(path, index))


def _put(container: Any, key: Any, remake: Any, path: str, plan: Plan) -> None:
    plan.apply(path, lambda: container.__setitem__(key, remake()))


def _match_tuple(items: list[Node], live: tuple[Any, ...], path: str, plan: Plan) -> Remake:
    if len(items) != len(live):
        plan.mismatch(path, items, f"a tuple of {len(live)}")
        return None
    remakes = [
        match(node, value, join(path, index), plan)
        for index, (node, value) in enumerate(zip(items, live, strict=True))
    ]
    if not any(remakes):
        return None
    return lambda: tuple(
        value if remake is None else remake() for value, remake in zip(live, remakes, strict=True)
    )


def _is_plain_value(live: Any, plan: Plan) -> bool:
    if type(live) in _MAPPINGS:
        return all(_is_plain_value(value, plan) for value in live.values())
    if type(live) in (list, tuple):
        return all(_is_plain_value(value, plan) for value in live)
    return type(live) in _ATOMS or not any(adapter.claims(live) for adapter in plan.adapters)


_ATOMS = frozenset({int, float, str, bool, type(None), bytes, complex})


def _miss(live: Any, path: str, plan: Plan) -> None:
    for name in live_names(live, path, plan):
        plan.miss(name)


def live_names(live: Any, path: str, plan: Plan) -> list[str]:
    """The names of the values in a live state; what is plain, or an object, counts as one."""
    if _is_plain_value(live, plan):
        return [path]
    if type(live) in _MAPPINGS:
        inner = list(live.items())
    elif type(live) in (list, tuple):
        inner = list(enumerate(live))
    else:
        return [path]
    return [name for key, value in inner for name in live_names(value, join(path, key), plan)]
