"""Objects that hold other objects: their nodes, and their restore into live objects."""

from __future__ import annotations

import logging
from functools import partial

from deepfreeze.base.names import Owner, join
from deepfreeze.frameworks.class_names import class_name
from deepfreeze.frameworks.in_use.held_objects import HOLDER, HeldGenerator, as_object, object_at
from deepfreeze.state.contracts import Adapter, Filler, Remake, Sink
from deepfreeze.state.tree import Node, tag_of

log = logging.getLogger("deepfreeze")


def encode_holder(
    value: object, held: dict[str, object], path: str, capture: Sink, adapter: Adapter
) -> Node:
    """The node of an object of `adapter`, with those of the objects that it holds."""
    own = adapter.encode(value, join(path, "own"), capture)
    beside = {}
    for name, inner in held.items():
        place = _place_of(path, name)
        known = as_object(inner)
        if isinstance(known, HeldGenerator):  # as df.RNG(), each rank's own
            capture.keys.own(place, Owner.EACH)
        beside[name] = capture.encode_part(known, place)
    return {"$": "object", "t": HOLDER, "v": {"own": own, "held": beside}}


def match_holder(node: Node, live: object, path: str, plan: Filler, adapter: Adapter) -> Remake:
    """Plans how a live object takes a stored one; either may hold others.

    `adapter` is the object's adapter.
    """
    stored: dict[str, Node] = {}
    place = path
    here = plan.held_by(live)
    if tag_of(node) == "object" and node["t"] == HOLDER:
        stored, node, place = node["v"]["held"], node["v"]["own"], join(path, "own")
    remake = adapter.match(node, live, place, plan)
    for name, part in stored.items():
        _match_held(part, object_at(live, name), live, _place_of(path, name), plan)
    for name in here.keys() - stored.keys():
        if type(node) is dict and "class" in node:
            plan.miss(_place_of(path, name))
        elif plan.keys.wants(_place_of(path, name)):
            log.warning("%s: not in this checkpoint of an older version, so it stays as it is",
                        _place_of(path, name))  # fmt: skip
    return remake


def _match_held(node: Node, inner: object | None, holder: object, path: str, plan: Filler) -> None:
    if inner is None:
        if plan.keys.wants_whole(path):
            plan.unfit(path, f"stored of an object that the live {class_name(holder)} lacks")
        return
    known = as_object(inner)
    if isinstance(known, HeldGenerator):  # last, because other objects' loading may draw
        plan.defer(partial(plan.match, node, known, path))
        return
    plan.match(node, known, path)


def _place_of(path: str, name: str) -> str:
    # The name may be dotted, for an item of a list attribute; as a key it is one part.
    return join(join(path, "held"), name)
