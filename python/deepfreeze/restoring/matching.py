"""Matches a tree with a live state: decides which stored node goes into which live place.

A live dict, list or tuple with only plain values is data: it gets the stored content, and names
within it are not compared; tensors may have been added to it, or replace its numbers. The state
itself, and every container of live tensors or objects, is structure: its names must be the same
under strict. Both keep the identity of live containers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from deepfreeze.base.names import join
from deepfreeze.errors import MismatchError
from deepfreeze.frameworks.in_use.held_objects import HOLDER, match_holder
from deepfreeze.frameworks.in_use.rng import RNG
from deepfreeze.frameworks.stateful import StatefulAdapter, is_loader, may_hold
from deepfreeze.restoring.filling import FILLS, put_into
from deepfreeze.state.contracts import Filler, Remake, UnknownTypeError
from deepfreeze.state.kinds import (
    ATOMS,
    MAPPINGS,
    array_may_replace,
    is_detail,
    kind_of_live,
    kind_of_node,
    may_replace,
    text_of_live,
)
from deepfreeze.state.per_rank import PerRank
from deepfreeze.state.registry import REGISTERED, RegisteredType
from deepfreeze.state.tree import Node, has_objects, is_plain, mapping_pairs, sequence_items, tag_of

_OF_RNGS = StatefulAdapter()  # it need not see whether their load_state_dict() loses bits
_WHOLE = object()  # stands for the whole content of a container


def match_state(node: Node, state: Any, plan: Filler) -> None:
    """Plans the restore of a whole state, which must be a dict or a list."""
    pairs = mapping_pairs(node)
    if pairs is not None and type(state) in MAPPINGS:
        _match_pairs(pairs, state, "", plan)
        return
    items = sequence_items(node, list)
    if items is not None and type(state) is list:
        _match_items(items, state, "", plan)
        return
    # Not even strict=False can restore a part of it.
    raise MismatchError(
        f"the state is {text_of_live(state)}, the checkpoint holds a {plan.text_of(node)}; "
        "a dict can only be restored into a dict, a list into a list"
    )


def match(node: Node, live: Any, path: str, plan: Filler) -> Remake:
    """Plans how `live` takes `node`; Remake is the caller's part."""
    try:
        return _match(node, live, path, plan)
    except UnknownTypeError as cause:
        plan.unfit(path, str(cause).removeprefix(f"{path}: "))
        return None


def _match(node: Node, live: Any, path: str, plan: Filler) -> Remake:
    if live is None or (type(live) in (*MAPPINGS, list) and not live):
        return _match_empty(node, live, path, plan)
    if is_detail(live):
        return _match_value(node, live, path, plan)
    if (isinstance(live, (PerRank, RNG)) or is_loader(live)) and plan.leaves_alone(path):
        return None
    if isinstance(live, PerRank):
        return _match_per_rank(node, live, path, plan)
    known = REGISTERED.get(type(live))
    if known is not None:
        return _match_registered(node, live, known, path, plan)
    if isinstance(live, RNG):
        # Other objects may draw while they load, so RNGs are put in place last.
        plan.defer(partial(_OF_RNGS.match, node, live, path, plan))
        return None
    for adapter in plan.adapters:
        if adapter.claims(live):
            is_holder = tag_of(node) == "object" and node["t"] == HOLDER
            if is_holder or may_hold(live):
                return match_holder(node, live, path, plan, adapter)
            return adapter.match(node, live, path, plan)
    if not _is_data(node, live, path, plan):
        pairs = mapping_pairs(node)
        if pairs is not None and type(live) in MAPPINGS:
            _match_pairs(pairs, live, path, plan)
            return None
        items = sequence_items(node, type(live)) if type(live) in (list, tuple) else None
        if items is not None and type(live) is list:
            _match_items(items, live, path, plan)
            return None
        if items is not None:
            return _match_tuple(items, live, path, plan)
    return _match_value(node, live, path, plan)


def _match_registered(
    node: Node, live: Any, known: RegisteredType, path: str, plan: Filler
) -> Remake:
    for adapter in plan.adapters if plan.keys.wants_whole(path) else ():
        found = adapter.match_registered(node, live, known, path, plan)
        if found is not None:
            return found[0]
    return _match_value(node, live, path, plan)


def _is_data(node: Node, live: Any, path: str, plan: Filler) -> bool:
    """Whether a live container is replaced as a whole."""
    whole = plan.keys.chooses_all or plan.keys.wants_whole(path)
    if not whole or not _is_plain_value(live, plan) or has_objects(node):
        return False
    return is_plain(node) or _is_like_data(node, live, plan)


def _is_like_data(node: Node, live: Any, plan: Filler) -> bool:
    """Whether all entries that both have may be replaced, as losses of a history by tensors."""
    if is_plain(node) or not live:
        return _may_become(node, live, plan)
    pairs = mapping_pairs(node) if type(live) in MAPPINGS else None
    if pairs is not None:
        return all(_is_like_data(each, live[key], plan) for key, each in pairs if key in live)
    items = sequence_items(node, type(live)) if type(live) in (list, tuple) else None
    if items is not None:
        return all(map(partial(_is_like_data, plan=plan), items, live))
    return _may_become(node, live, plan)


def _match_per_rank(node: Node, live: PerRank[Any], path: str, plan: Filler) -> Remake:
    remake = match(node, live.value, path, plan)
    if remake is not None:
        plan.apply(path, lambda: setattr(live, "value", remake()))
    return None


def _match_empty(node: Node, live: Any, path: str, plan: Filler) -> Remake:
    """None takes any saved value, an empty container a value of its own kind."""
    if plan.keys.wants_whole(path) and has_objects(node):
        plan.surplus(node, path)
        return None
    return _match_value(node, live, path, plan)


def _match_value(node: Node, live: Any, path: str, plan: Filler) -> Remake:
    if not plan.keys.wants_whole(path):
        return None
    if has_objects(node) or not _may_become(node, live, plan):
        plan.mismatch(path, node, text_of_live(live))
        return None
    return _in_container(node, live, path, plan)


def _may_become(node: Node, live: Any, plan: Filler) -> bool:
    """Whether the stored value may replace the live one, because both mean the same."""
    if not _is_plain_value(live, plan):
        return type(live) in REGISTERED and kind_of_node(node) == kind_of_live(live)
    form = plan.form_in(node)
    if not plan.strict and is_plain(node):
        return True
    return may_replace(node, live) if form is None else array_may_replace(*form, live)


def _in_container(node: Node, live: Any, path: str, plan: Filler) -> Remake:
    """Makes the value anew, but a container keeps its identity: other objects may hold it."""
    make = plan.fresh(node, path)
    if type(live) in (*FILLS, tuple) and kind_of_node(node) == kind_of_live(live):
        if type(live) is tuple:
            return lambda: put_into(live, make(), set())
        if plan.take(live, _WHOLE, node, path):
            plan.apply(path, lambda: put_into(live, make(), set()))
        return None
    return make


def _match_pairs(
    pairs: list[tuple[Any, Node]], live: dict[Any, Any], path: str, plan: Filler
) -> None:
    stored = dict(pairs)
    for key, value in live.items():
        if key not in stored:
            _miss(value, join(path, key), plan)
            continue
        node = stored.pop(key)
        remake = match(node, value, join(path, key), plan)
        if remake is not None:
            _put(live, key, node, remake, join(path, key), plan)
    for key, node in stored.items():
        plan.surplus(node, join(path, key))


def _match_items(items: list[Node], live: list[Any], path: str, plan: Filler) -> None:
    for index, value in enumerate(live[: len(items)]):
        remake = match(items[index], value, join(path, index), plan)
        if remake is not None:
            _put(live, index, items[index], remake, join(path, index), plan)
    for index in range(len(items), len(live)):
        _miss(live[index], join(path, index), plan)
    for index in range(len(live), len(items)):
        plan.surplus(items[index], join(path, index))


def _put(container: Any, key: Any, node: Node, remake: Any, path: str, plan: Filler) -> None:
    if plan.take(container, key, node, path):
        plan.apply(path, lambda: container.__setitem__(key, remake()))


def _match_tuple(items: list[Node], live: tuple[Any, ...], path: str, plan: Filler) -> Remake:
    if len(items) != len(live):
        plan.unfit(path, f"stored a tuple of {len(items)}, live a tuple of {len(live)}")
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


def _is_plain_value(live: Any, plan: Filler) -> bool:
    if type(live) in MAPPINGS:
        return all(_is_plain_value(value, plan) for value in live.values())
    if type(live) in (list, tuple):
        return all(_is_plain_value(value, plan) for value in live)
    if type(live) in ATOMS or is_detail(live):
        return True
    return not isinstance(live, PerRank) and not any(
        adapter.claims(live) for adapter in plan.adapters
    )


def _miss(live: Any, path: str, plan: Filler) -> None:
    for name in live_names(live, path, plan):
        plan.miss(name)


def live_names(live: Any, path: str, plan: Filler) -> list[str]:
    """The names of the values in a live state; a plain value or an object counts as one."""
    if _is_plain_value(live, plan):
        return [path]
    if type(live) in MAPPINGS:
        inner = list(live.items())
    elif type(live) in (list, tuple):
        inner = list(enumerate(live))
    else:
        return [path]
    return [name for key, value in inner for name in live_names(value, join(path, key), plan)]
