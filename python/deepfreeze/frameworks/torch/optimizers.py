"""Optimizers: state by parameter name, restored with its saved dtype.

Optimizer.load_state_dict is not used: it casts state to the parameter's dtype. All options of the
parameter groups are restored as saved, foreach, fused and capturable among them. An optimizer is
treated like any other object if its class has a state_dict or load_state_dict of its own, or if it
has hooks that change the state that these give or take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeAlias, TypeGuard

import torch
from torch import nn
from torch.optim import Optimizer

from deepfreeze.base.names import KeyTable, join, nested
from deepfreeze.frameworks.class_names import telling_name
from deepfreeze.frameworks.torch.modules import canonical_names
from deepfreeze.state.contracts import Sink
from deepfreeze.state.per_rank import PerRank
from deepfreeze.state.tree import Node

_NOT_OPTIONS = frozenset({"params", "param_names"})  # names differ between wrapped and bare modules
Placed: TypeAlias = tuple[tuple[str, ...], nn.Module]  # the keys that lead to a module, and it


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
    optimizer: Optimizer, path: str, capture: Sink, named: Named, state: Node, *, has_other: bool
) -> Node:
    """The node of an optimizer; `state` is that of the state of its parameters.

    `has_other`: it has state that belongs to no parameter, too.
    """
    place = join(path, "param_groups")
    nodes = named.group_nodes(optimizer, place, capture)
    groups: list[Node] = []
    for g, group in enumerate(optimizer.param_groups):
        options = {key: value for key, value in group.items() if key not in _NOT_OPTIONS}
        within = join(join(place, g), "options")
        groups.append({**nodes[g], "options": capture.encode(options, within)})
    tree = {"state": state, "param_groups": groups}
    if has_other:
        other = {key: each for key, each in optimizer.state.items() if id(key) not in named.names}
        tree["other"] = capture.encode(other, join(path, "other"))
    kind = telling_name(optimizer_class(optimizer))
    return {"$": "object", "t": "optimizer", "class": kind, "v": tree}


def has_other_state(optimizer: Optimizer, named: Named) -> bool:
    """Whether some of its state belongs to no parameter."""
    return not named.names.keys() >= set(map(id, optimizer.state))


def encode_state(optimizer: Optimizer, path: str, capture: Sink, named: Named) -> Node:
    """The node of the state that belongs to parameters, by their names."""
    names = named.names
    state = {names[id(key)]: value for key, value in optimizer.state.items() if id(key) in names}
    return capture.encode(state, join(path, "state"))


# Names of parameters, by which the state is stored and found again


class ParameterNames:
    """The names of parameters, found by identity, from the modules of a state.

    A tensor that no module has is named by its place in the dicts and lists of the state.
    """

    def __init__(self, modules: Iterable[Placed]) -> None:
        self._names: dict[int, tuple[str, ...]] = {}  # the keys that lead to it, its name last
        self._known: dict[int, Named] = {}  # by optimizer
        self._loose: list[tuple[tuple[str, ...], int]] | None = None  # None: not looked for
        for keys, module in modules:
            canonical = canonical_names(module)
            for name, parameter in module.named_parameters(remove_duplicate=False):
                self._names.setdefault(id(parameter), (*keys, canonical(name)))

    @classmethod
    def of_modules(cls, state: object) -> ParameterNames:
        """Names for version 0.1: tensors that no module has are named by their order alone."""
        names = cls(modules_in(state, ()))
        names._loose = []
        return names

    def paths_of(self, parameters: Iterable[torch.Tensor]) -> list[str | None]:
        """The parameters' paths in the state; None if no module of the state has one."""
        places = [self._names.get(id(parameter)) for parameter in parameters]
        return [None if place is None else nested(place) for place in places]

    def of(self, optimizer: Optimizer, state: object) -> Named:
        """The names of an optimizer's parameters; the same object while these are the same."""
        known = self._known.get(id(optimizer))
        if known is None or not known.holds(optimizer):
            known = Named(optimizer, self._names_of(optimizer, state))
            self._known[id(optimizer)] = known
        return known

    def hold_in(self, state: object) -> bool:
        """Whether tensors that no module has are in their old places, as far as that matters."""
        return self._loose is None or self._loose == _loose_in(state)

    def _name_loose(self, state: object) -> None:
        if self._loose is None:
            self._loose = _loose_in(state)
            for keys, identity in self._loose:
                self._names.setdefault(identity, keys)

    def _names_of(self, optimizer: Optimizer, state: object) -> dict[int, str]:
        groups = _ids(optimizer)
        if not self._names.keys() >= set(chain(*groups)):
            self._name_loose(state)
        places: dict[int, tuple[str, ...]] = {}
        for g, group in enumerate(groups):
            for i, identity in enumerate(group):
                places[identity] = self._names.get(identity, (f"group{g}.param{i}",))
        counts = Counter(place[-1] for place in places.values())
        table = KeyTable()
        # Sorted, and equal ones as the modules come, so that the suffixes of equal names do not
        # depend on the order of the groups.
        order = {key: i for i, key in enumerate(self._names)}
        by_place = sorted(places.items(), key=lambda item: (item[1], order.get(item[0], 0)))
        names = {
            key: table.take(place[-1] if counts[place[-1]] == 1 else nested(place))
            for key, place in by_place
        }
        assert len(set(names.values())) == len(names)
        return names


class Named:
    """One optimizer's parameters in their groups, each with a name different from all others."""

    def __init__(self, optimizer: Optimizer, names: dict[int, str]) -> None:
        self.names = names  # by the id of the parameter
        self._groups = _ids(optimizer)
        self._shapes: list[list[torch.Size]] = []
        self._nodes: list[dict[str, Node]] = []

    def holds(self, optimizer: Optimizer) -> bool:
        """Whether its groups still have these parameters, in this order."""
        return _ids(optimizer) == self._groups

    def group_nodes(self, optimizer: Optimizer, path: str, capture: Sink) -> list[dict[str, Node]]:
        """The names and shapes of the parameters of each group."""
        groups = [group["params"] for group in optimizer.param_groups]
        shapes = [[parameter.shape for parameter in group] for group in groups]
        if shapes != self._shapes or not self._nodes:
            trees = [
                {
                    "params": [self.names[id(parameter)] for parameter in group],
                    "shapes": [list(parameter.shape) for parameter in group],
                }
                for group in groups
            ]
            self._nodes, self._shapes = capture.encode(trees, path), shapes
        return self._nodes


def _ids(optimizer: Optimizer) -> list[list[int]]:
    return [[id(parameter) for parameter in group["params"]] for group in optimizer.param_groups]


def modules_in(state: object, keys: tuple[str, ...]) -> Iterator[Placed]:
    """The modules among a state's values, and the keys that lead to each after `keys`."""
    if isinstance(state, nn.Module):
        yield keys, state
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from modules_in(value, (*keys, str(key)))
    elif isinstance(state, (list, tuple)):
        for index, value in enumerate(state):
            yield from modules_in(value, (*keys, str(index)))


def _loose_in(state: object) -> list[tuple[tuple[str, ...], int]]:
    return [(keys, id(tensor)) for keys, tensor in tensors_in(state, ())]


def tensors_in(
    state: object, keys: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """The tensors among a state's values, and the keys that lead to each after `keys`."""
    if isinstance(state, PerRank):
        state = state.value
    if isinstance(state, torch.Tensor):
        yield keys or ("",), state
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from tensors_in(value, (*keys, str(key)))
    elif isinstance(state, (list, tuple)):
        for index, value in enumerate(state):
            yield from tensors_in(value, (*keys, str(index)))
