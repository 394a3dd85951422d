"""Objects with state_dict and load_state_dict: schedulers, scalers, loaders, samplers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from deepfreeze.base.names import Owner, shown
from deepfreeze.errors import EncodeError
from deepfreeze.frameworks.class_names import class_name, is_same_class
from deepfreeze.state.contracts import Adapter, Filler, Remake, Sink, Source
from deepfreeze.state.tree import Node, mapping_pairs, tag_of

# Entries that mean the same in schedulers of all of torch's classes.
_OF_SCHEDULERS = frozenset({"last_epoch", "base_lrs", "_step_count", "_last_lr"})

# Objects of these libraries give the state of the objects they hold, or leave it to their holder.
_LIBRARIES = frozenset({
    "torch", "torchdata", "torchtitan", "accelerate", "lightning", "lightning_fabric",
    "pytorch_lightning", "transformers", "deepspeed", "deepfreeze",
})  # fmt: skip

_WRAPPERS = frozenset({"accelerate", "lightning", "lightning_fabric", "pytorch_lightning"})
_WRAPPED = ("optimizer", "_optimizer", "scheduler")

# Has an object load its state: the object, the state, its path, the plan.
Load: TypeAlias = Callable[[Any, Any, str, Filler], None]


def is_stateful(value: object) -> bool:
    """Whether `value` saves and restores itself by the usual pair of methods."""
    if isinstance(value, type):
        return False
    return callable(getattr(value, "state_dict", None)) and callable(
        getattr(value, "load_state_dict", None)
    )


def is_loader(value: object) -> bool:
    """Whether the object is known to give each rank other data."""
    return type(value).__module__.partition(".")[0] == "torchdata"


def may_hold(value: object) -> bool:
    """Whether an object may hold others: one of the program's own, with a state_dict()."""
    value = real(value)
    kind = type(value)
    if kind.__module__.partition(".")[0] in _LIBRARIES or not has_state_methods(kind):
        return False
    torch = sys.modules.get("torch")
    is_module = torch is not None and isinstance(value, torch.nn.Module)
    return not is_module and isinstance(getattr(value, "__dict__", None), dict)


def has_state_methods(kind: type) -> bool:
    """Asks the class, because an object that answers to any name is no stateful one."""
    return all(callable(getattr(kind, name, None)) for name in ("state_dict", "load_state_dict"))


def real(value: Any) -> Any:
    """The object within wrappers that only pass calls on, as accelerate's do."""
    while type(value).__module__.partition(".")[0] in _WRAPPERS:
        members = getattr(value, "__dict__", {})
        inner = next((members[name] for name in _WRAPPED if name in members), None)
        if inner is None:
            break
        value = inner
    return value


class StatefulAdapter(Adapter):
    """Stores the state that an object gives, and gives it back whole."""

    def __init__(self, load: Load | None = None) -> None:
        self._load = load_as_given if load is None else load

    def claims(self, value: object) -> bool:
        return is_stateful(value)

    def encode(self, value: Any, path: str, capture: Sink) -> Node:
        capture.refuse_inside(value, path)
        if is_loader(value):
            capture.keys.own(path, Owner.EACH)
        return stateful_node(value, path, capture)

    def match(self, node: Node, live: Any, path: str, plan: Filler) -> Remake:
        if not plan.keys.wants_whole(path):
            return None
        if tag_of(node) != "object" or node["t"] != "stateful":
            plan.mismatch(path, node, f"a {class_name(live)}")
            return None
        stored = node.get("class")
        if stored is not None and not is_same_class(stored, class_name(live)):
            _match_other_class(node, live, path, plan, self._load)
            return None
        if node["v"] == {} and _refuses_empty(live):
            plan.mismatch(path, node, "a GradScaler that is enabled; the stored one was not")
            return None
        make = plan.fresh(node["v"], path)
        plan.apply(path, lambda: self._load(live, make(), path, plan))
        return None

    def decodes(self, tag: str, node: Node) -> bool:
        return tag == "object"

    def decode(self, tag: str, node: Node, path: str, plan: Source) -> object:
        return plan.decoder.decode(node["v"], path)


def _refuses_empty(live: Any) -> bool:
    """Whether it is an enabled GradScaler of torch.

    A disabled one stores an empty dict. An enabled one refuses it, but only when it is loaded,
    after live tensors have been written.
    """
    classes = type(live).__mro__
    scaler = any(
        cls.__module__ == "torch.amp.grad_scaler" and cls.__name__ == "GradScaler"
        for cls in classes
    )
    return scaler and bool(live.is_enabled())


def load_as_given(live: Any, state: Any, path: str, plan: Filler) -> None:
    """Has the object load its state. torch's adapter also makes sure that no bits are lost."""
    live.load_state_dict(state)


def _match_other_class(node: Node, live: Any, path: str, plan: Filler, load_state: Load) -> None:
    """An error under strict; else only entries that mean the same in both classes are loaded."""
    text = f"stored by {node['class']}, but live is {class_name(live)}, another class"
    if plan.strict:
        plan.unfit(
            path,
            f"{text}: build the one that was saved, or restore with strict=False, "
            "which takes entries that mean the same in both (all, if only the class's name is new)",
        )
        return
    now: Any = call_state_dict(live, path)
    alike = _alike(node["v"], now)
    if not alike:
        plan.unfit(path, f"{text}, whose state has other entries: it stays as it is")
        return
    plan.unfit(path, f"{text}: only {', '.join(map(str, alike))} restored")
    makes = {key: plan.fresh(part, path) for key, part in alike.items()}

    def load() -> None:
        # All entries, because a loader may look for each.
        load_state(live, {**now, **{key: make() for key, make in makes.items()}}, path, plan)

    plan.apply(path, load)


def _alike(node: Node, now: object) -> dict[Any, Node]:
    """The stored entries that an object of another class, whose state is `now`, can take."""
    pairs = mapping_pairs(node)
    if pairs is None or not isinstance(now, Mapping):
        return {}
    stored = dict(pairs)
    if stored.keys() == now.keys():
        return stored
    if "last_epoch" in stored and "last_epoch" in now:
        # A scheduler that has schedulers within would be out of step with them.
        both = set() if "_schedulers" in now else _OF_SCHEDULERS & stored.keys() & now.keys()
        return {key: stored[key] for key in sorted(both)}
    # A class was renamed, and has got or lost an entry, or makes some only later.
    return stored if stored.keys() <= now.keys() or now.keys() <= stored.keys() else {}


def object_node(kind: str, state: object, path: str, capture: Sink) -> Node:
    """The node of an object of the kind "module", "optimizer" or "stateful"."""
    return {"$": "object", "t": kind, "v": capture.encode(state, path)}


def stateful_node(value: Any, path: str, capture: Sink) -> Node:
    """The node of an object of its class, with the state that its state_dict() gives."""
    state = capture.encode(call_state_dict(value, path), path)
    return {"$": "object", "t": "stateful", "class": class_name(value), "v": state}


def call_state_dict(value: Any, path: str) -> object:
    """value.state_dict(); if it fails, the EncodeError names the place in the state."""
    call: Callable[[], object] = value.state_dict
    try:
        return call()
    except Exception as cause:
        kind = type(value).__qualname__
        raise EncodeError(f"{shown(path)}: {kind}.state_dict() failed: {cause!r}") from cause
