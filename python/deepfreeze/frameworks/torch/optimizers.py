"""Optimizers: state by parameter name, restored with its saved dtype.

Optimizer.load_state_dict is not used: it casts state to the parameter's dtype. All options of the
parameter groups are restored as saved, foreach, fused and capturable among them. An optimizer is
treated like any other object if its class has a state_dict or load_state_dict of its own, or if it
has hooks that change the state that these give or take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

from torch.optim import Optimizer

from deepfreeze.base.names import join
from deepfreeze.frameworks.class_names import telling_name
from deepfreeze.frameworks.torch.parameter_names import Named
from deepfreeze.state.contracts import Sink
from deepfreeze.state.tree import Node

_NOT_OPTIONS = frozenset({"params", "param_names"})  # names differ between wrapped and bare modules


def is_optimizer(value: object) -> TypeGuard[Optimizer]:
    """Whether `value` is an optimizer with torch's own state_dict, possibly wrapped."""
    if not isinstance(value, Optimizer):
        return False
    inner = unwrapped(value)
    return not (
        _has_own_format(inner)
        or hooks_of(inner, "_optimizer_state_dict_post_hooks")
        or hooks_of(inner, "_optimizer_load_state_dict_pre_hooks")
    )


def hooks_of(optimizer: Optimizer, name: str) -> list[Callable[..., Any]]:
    """The hooks that an optimizer keeps under `name`."""
    # A wrapper that does not call Optimizer.__init__ has none.
    return list(vars(optimizer).get(name, {}).values())


def _has_own_format(optimizer: Optimizer) -> bool:
    return (
        type(optimizer).state_dict is not Optimizer.state_dict
        or type(optimizer).load_state_dict is not Optimizer.load_state_dict
        or not {"state_dict", "load_state_dict"}.isdisjoint(vars(optimizer))
    )


def unwrapped(optimizer: Optimizer) -> Optimizer:
    """The optimizer inside wrappers that add no state of their own."""
    inner = vars(optimizer).get("optimizer")
    while isinstance(inner, Optimizer) and _only_passes_on(optimizer, inner):
        optimizer, inner = inner, vars(inner).get("optimizer")
    return optimizer


def _only_passes_on(wrapper: Optimizer, inner: Optimizer) -> bool:
    if type(wrapper).__module__.startswith("accelerate."):
        return True  # its methods are its own, but they only call the inner ones
    return vars(wrapper).get("state") is inner.state and not _has_own_format(wrapper)


def optimizer_class(optimizer: Optimizer) -> type[Optimizer]:
    """The class that makes the updates; Lightning's wrapper makes a class for each optimizer."""
    inner = vars(optimizer).get("_optimizer")
    if isinstance(inner, Optimizer) and inner.state is vars(optimizer).get("state"):
        return type(inner)
    return type(optimizer)


def encode_optimizer(
    optimizer: Optimizer, path: str, capture: Sink, named: Named, state: Node
) -> Node:
    """The node of an optimizer; `state` is that of the state of its parameters."""
    place = join(path, "param_groups")
    groups = [
        {**nodes, "options": capture.encode(_options(group), join(join(place, g), "options"))}
        for g, (nodes, group) in enumerate(
            zip(named.group_nodes(optimizer, place, capture), optimizer.param_groups, strict=True)
        )
    ]
    tree = {"state": state, "param_groups": groups}
    other = {key: value for key, value in optimizer.state.items() if id(key) not in named.names}
    if other:
        tree["other"] = capture.encode(other, join(path, "other"))
    kind = telling_name(optimizer_class(optimizer))
    return {"$": "object", "t": "optimizer", "class": kind, "v": tree}


def encode_state(optimizer: Optimizer, path: str, capture: Sink, named: Named) -> Node:
    """The node of the state that belongs to parameters, by their names."""
    names = named.names
    state = {names[id(key)]: value for key, value in optimizer.state.items() if id(key) in names}
    return capture.encode(state, join(path, "state"))


def run_state_hooks(optimizer: Optimizer) -> None:
    """Does the work that state_dict() does before it reads the state."""
    for hook in hooks_of(optimizer, "_optimizer_state_dict_pre_hooks"):
        hook(optimizer)


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in _NOT_OPTIONS}
