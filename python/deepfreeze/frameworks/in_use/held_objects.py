"""Objects that another object of the state holds, and that its own state_dict() leaves out.

SAM and Lookahead hold the optimizer that does the work, a trainer holds its model. The state of
such an object is stored beside its holder's: as the node of a "holder", with "own" and "held" in
it.

We look at the attributes of the program's own objects, and at lists, tuples and dicts in them. An
object that has another place in the state is not held, nor is one whose state its holder gives.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

from deepfreeze.base.imported import imported
from deepfreeze.base.names import Owner, join
from deepfreeze.errors import EncodeError
from deepfreeze.frameworks.class_names import class_name
from deepfreeze.frameworks.generators import kind_of, set_state, state_of
from deepfreeze.frameworks.in_use.rng import RNG
from deepfreeze.frameworks.stateful import (
    call_state_dict,
    has_state_methods,
    is_stateful,
    may_hold,
    real,
)
from deepfreeze.state.contracts import Adapter, Filler, Remake, Sink
from deepfreeze.state.per_rank import PerRank
from deepfreeze.state.tree import Node, tag_of

log = logging.getLogger("deepfreeze")

HOLDER = "holder"
_ATOMS = frozenset({int, float, str, bool, bytes, complex, type(None)})
_ITEMS_MAX = 64  # of a list, tuple or dict that an attribute is
Verdicts: TypeAlias = dict[tuple[int, int], tuple["weakref.ref[Any]", "weakref.ref[Any]", bool]]


class HeldGenerator:
    """A random generator as an object with a state."""

    def __init__(self, generator: object) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Any]:
        """A state for load_state_dict()."""
        return state_of(self._generator)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Has the generator continue from that state."""
        set_state(self._generator, state)


def object_at(holder: object, name: str) -> object | None:
    """The held object of that name in a holder; None if there is no such object."""
    for found, value in _stateful_in(real(holder)):
        if found == name:
            return value
    return None


def as_object(value: object) -> object:
    """A held object with the usual methods: generators have no state_dict()."""
    return value if kind_of(value) is None else HeldGenerator(value)


@dataclass
class HeldObjects:
    """The held objects of one state, by the id of their holder and the attribute's name."""

    state: object
    verdicts: Verdicts  # of earlier saves, for objects that have tensors
    is_live: bool = False  # for a restore, whose objects may be newly made
    _found: dict[int, dict[str, object]] | None = field(default=None, init=False)

    def of(self, value: object) -> dict[str, object]:
        """The objects to store beside `value`, an object of the state that may_hold() others."""
        if self._found is None:
            self._found = self._find()
        return self._found.get(id(real(value)), {})

    def _find(self) -> dict[int, dict[str, object]]:
        # Sorted, so that the order of the state's keys does not decide which object holds a shared
        # one.
        places = sorted(_objects_in(self.state, ""), key=lambda place: place[0])
        holders = [(path, real(value)) for path, value in places if may_hold(value)]
        found: dict[int, dict[str, object]] = {}
        if not any(True for _, value in holders for _ in _stateful_in(value)):
            return found
        known = {id(each) for _, value in places for each in _parts_of(value)}
        known |= _global_generators()
        while holders:
            path, holder = holders.pop(0)
            for name, value in _stateful_in(holder):
                if id(value) in known:
                    continue
                known |= {id(each) for each in _parts_of(value)}
                place = join(path, name)
                if self._is_left_out(value, holder, place):
                    found.setdefault(id(holder), {})[name] = value
                    if may_hold(value):
                        holders.append((place, value))
        return found

    def _is_left_out(self, value: Any, holder: Any, path: str) -> bool:
        last = self.verdicts.get((id(holder), id(value)))
        if last is not None and last[0]() is holder and last[1]() is value:
            return last[2]
        state = _state_of(value, path)
        tensors = {*_tensors_in(state)}
        if state is None or not (tensors or _has_values(state)):
            return False  # it has no state yet
        try:
            answer = not self._gives(holder, value, state, tensors, path)
        except EncodeError:  # a save raises it; a restore does not need the live object's state
            return False
        if tensors:  # an object may get tensors only later, as an optimizer does
            self._note(holder, value, answer)
        return answer

    def _gives(
        self, holder: Any, value: Any, state: object, tensors: set[tuple[object, ...]], path: str
    ) -> bool:
        """Whether the holder's own state_dict() has the state of the object that it holds."""
        shared = getattr(value, "__dict__", {}).get("state")
        if isinstance(shared, dict) and shared is vars(holder).get("state"):
            return True  # it wraps the object, and has the same state
        if _is_optimizer(holder) and _has_torchs_format(holder):
            return False  # torch's state_dict() gives the optimizer's own state alone
        given = call_state_dict(holder, path)
        if not tensors and not self.is_live:
            return False  # counters that go in step may have equal values by chance
        return (bool(tensors) and tensors <= {*_tensors_in(given)}) or _is_within(state, given)

    def _note(self, holder: Any, value: Any, answer: bool) -> None:
        try:
            refs = weakref.ref(holder), weakref.ref(value)
        except TypeError:
            return
        self.verdicts[id(holder), id(value)] = (*refs, answer)


def _stateful_in(holder: object) -> Iterator[tuple[str, object]]:
    """The objects that a holder's attributes refer to, with the attributes' names."""
    passed = _passed_attributes(holder)
    for name, value in list(getattr(holder, "__dict__", {}).items()):
        if type(value) in _ATOMS or name in passed:
            continue
        if isinstance(value, (list, tuple)):
            items: Any = enumerate(value[:_ITEMS_MAX])
        elif isinstance(value, dict):
            items = list(islice(value.items(), _ITEMS_MAX))
        else:
            items = [("", value)]
        for key, item in items:
            if item is not holder and (has_state_methods(type(item)) or kind_of(item) is not None):
                yield (name if key == "" else join(name, key)), item


def _passed_attributes(holder: object) -> frozenset[str]:
    """A scheduler refers to its optimizer, but the program decides the optimizer's place."""
    if not imported("torch"):
        return frozenset()
    from deepfreeze.frameworks.torch import objects as torch_objects

    return torch_objects.passed_attributes(holder)


def _objects_in(state: object, path: str) -> Iterator[tuple[str, object]]:
    """The objects of a state, and their paths."""
    if isinstance(state, dict):
        for key, value in state.items():
            if type(value) not in _ATOMS:
                yield from _objects_in(value, join(path, key))
    elif isinstance(state, (list, tuple)):
        for index, value in enumerate(state):
            if type(value) not in _ATOMS:
                yield from _objects_in(value, join(path, index))
    elif isinstance(state, PerRank):
        yield from _objects_in(state.value, path)
    elif is_stateful(state):
        yield path, state


def _parts_of(value: Any) -> Iterator[object]:
    """An object, and those that are stored as a part of it."""
    yield value
    if _is_module(value):
        yield from value.modules()
    elif isinstance(value, RNG):
        yield from value.generators
    elif real(value) is not value:
        yield from _parts_of(real(value))


def _global_generators() -> set[int]:
    import random

    found: list[object] = [getattr(random, "_inst", None)]
    if imported("numpy"):
        import numpy as np

        found.append(np.random.mtrand._rand)
    if imported("torch"):
        from deepfreeze.frameworks.torch import objects as torch_objects

        found.append(torch_objects.global_generator())
    return {*map(id, found)}


def _state_of(value: Any, path: str) -> object:
    """A state that is compared with the holder's, to see whether the holder gives it."""
    kind = kind_of(value)
    if kind is None:
        return call_state_dict(value, path)
    if kind == "random.Random":
        return value.getstate()
    return value.get_state() if hasattr(value, "get_state") else value.bit_generator.state


def _is_within(state: object, given: object) -> bool:
    """Whether equal values are somewhere in the state that a holder gives."""
    if _is_covered(state, given):
        return True
    if isinstance(given, Mapping):
        return any(_is_within(state, each) for each in given.values())
    if isinstance(given, (list, tuple)) and len(given) <= _ITEMS_MAX:
        return any(_is_within(state, each) for each in given)
    return False


def _is_covered(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and all(
            key in other and _is_covered(item, other[key]) for key, item in one.items()
        )
    if isinstance(one, (list, tuple)):
        return (
            isinstance(other, (list, tuple))
            and len(one) == len(other)
            and all(map(_is_covered, one, other))
        )
    if hasattr(one, "shape"):
        return getattr(other, "shape", None) == one.shape and _is_equal(one, other)
    return one is other or (type(one) is type(other) and _is_equal(one, other))


def _is_equal(one: Any, other: Any) -> bool:
    try:
        equal = one == other
        return bool(equal.all()) if hasattr(equal, "all") else bool(equal)
    except Exception:  # a class of the program's may raise anything
        return False


def _tensors_in(state: Any) -> Iterator[tuple[object, ...]]:
    """The addresses and shapes of the tensors of a state."""
    if isinstance(state, Mapping):
        for item in state.values():
            yield from _tensors_in(item)
    elif isinstance(state, (list, tuple)):
        for item in state:
            yield from _tensors_in(item)
    elif hasattr(state, "data_ptr") and state.numel():
        local = getattr(state, "_local_tensor", state)
        yield local.data_ptr(), tuple(local.shape)


def _has_values(state: object) -> bool:
    if isinstance(state, (Mapping, list, tuple)):
        return any(map(_has_values, state.values() if isinstance(state, Mapping) else state))
    return True


def _is_module(value: object) -> bool:
    if not imported("torch"):
        return False
    from deepfreeze.frameworks.torch import objects as torch_objects

    return torch_objects.is_module(value)


def _is_optimizer(value: object) -> bool:
    if not imported("torch"):
        return False
    from deepfreeze.frameworks.torch import objects as torch_objects

    return torch_objects.is_optimizer_of_any_format(value)


def _has_torchs_format(optimizer: object) -> bool:
    from deepfreeze.frameworks.torch.optimizers import is_optimizer

    return is_optimizer(optimizer)


# Their nodes


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
    here = plan.held_by(live) if may_hold(live) else {}
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
