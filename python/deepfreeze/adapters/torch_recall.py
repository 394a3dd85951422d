"""What modules and optimizers were at the last save, so that the next need not walk them again.

Between two saves of a run hardly anything changes but bytes in memory. A recall compares what the
result of a walk depends on: the same places hold the same objects, under the same names and of the
same kinds. Then it gives the nodes of the last walk, with the tensors that lie in those places now.
It refers to tensors by place only: a weak reference would keep torch from swapping them. What has
methods or hooks of its own, which may say something new each time, is never recalled.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import chain
from operator import is_
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.optim import Optimizer

from deepfreeze.adapters.torch_optimizers import Named, ParameterNames, modules_in
from deepfreeze.tree import Node

Seen: TypeAlias = tuple[Node, torch.Tensor, str]  # node to fill in, tensor, path

_STATE_METHODS = ("state_dict", "_save_to_state_dict", "get_extra_state")
_TORCHS_OWN = {name: getattr(nn.Module, name) for name in _STATE_METHODS}


_NAMING_METHODS = ("named_parameters", "named_modules")
_TORCHS_NAMING = {name: getattr(nn.Module, name) for name in _NAMING_METHODS}
_KINDS = (torch.Tensor, nn.Parameter)  # as they are, no subclass: what those add is not known here


class _Contents:
    """What several dicts hold: which names stand for which objects, by identity."""

    def __init__(self, dicts: list[dict[Any, Any]]) -> None:
        self._sizes = [len(each) for each in dicts]
        self._keys = [*chain.from_iterable(dicts)]
        self._key_kinds = [*map(type, self._keys)]  # 1 equals True
        self._ids = [*map(id, _values(dicts))]

    def are_in(self, dicts: list[dict[Any, Any]]) -> bool:
        """Whether these dicts have the same names, in the same order, for the same values.

        A new object with the id of an old one passes: it is in the old one's place.
        """
        keys = [*chain.from_iterable(dicts)]
        return (
            [len(each) for each in dicts] == self._sizes
            and keys == self._keys
            and [*map(type, keys)] == self._key_kinds
            and [*map(id, _values(dicts))] == self._ids
        )


def _values(dicts: list[dict[Any, Any]]) -> Iterator[Any]:
    return chain.from_iterable(each.values() for each in dicts)


class Structure:
    """Which modules and tensors a module is made of, and their names."""

    def __init__(self, module: nn.Module) -> None:
        modules = list(module.modules())
        self._modules = [weakref.ref(each) for each in modules]
        self._contents = _Contents(_dicts_of(modules))

    def modules(self) -> list[nn.Module]:
        """Those that are left, each once, the module itself first."""
        return [each for ref in self._modules if (each := ref()) is not None]

    def holds(self, module: nn.Module) -> bool:
        """Whether the module is still made of the same."""
        modules = self.modules()
        return (
            len(modules) == len(self._modules)
            and modules[0] is module
            and self._contents.are_in(_dicts_of(modules))
        )

    def values(self) -> list[Any]:
        """All that it holds: parameters, buffers and modules, in a constant order."""
        return [*_values(_dicts_of(self.modules()))]


def _dicts_of(modules: list[nn.Module]) -> list[dict[str, Any]]:
    return [each for m in modules for each in (m._parameters, m._buffers, m._modules)]


class _Tensors:
    """Of one object's tensors, in the walk's order: their nodes, paths and kinds."""

    def __init__(self, live: list[torch.Tensor], seen: list[Seen]) -> None:
        self._nodes = [node for node, _, _ in seen]
        self._paths = [path for _, _, path in seen]
        self._kinds = [_kind(tensor) for tensor in live]

    def are_like(self, live: list[torch.Tensor]) -> bool:
        return [_kind(tensor) for tensor in live] == self._kinds

    def seen(self, tensors: list[torch.Tensor]) -> list[Seen]:
        return list(zip(self._nodes, tensors, self._paths, strict=True))


def _kind(tensor: torch.Tensor) -> tuple[object, ...]:
    return type(tensor), tensor.dtype, tensor.layout, tensor.device


class ModuleRecall:
    """One module that gives its state by torch's own methods, and all of it in tensors."""

    def __init__(
        self, structure: Structure, node: Node, live: list[torch.Tensor], seen: list[Seen]
    ) -> None:
        self._structure = structure
        self._hidden = [set(m._non_persistent_buffers_set) for m in structure.modules()]
        place_of = {id(value): place for place, value in enumerate(structure.values())}
        self._places = [place_of[id(tensor)] for tensor in live]
        self._node = node
        self._tensors = _Tensors(live, seen)

    @classmethod
    def of(cls, module: nn.Module, node: Node, seen: list[Seen]) -> ModuleRecall | None:
        """What `node` and `seen` have come of; None where the next walk may find anything."""
        structure = Structure(module)
        if not _gives_its_tensors(structure.modules()):
            return None
        live = list(module.state_dict(keep_vars=True).values())
        nodes = list(node["v"].values())
        same = len(live) == len(seen) == len(nodes) and all(
            type(tensor) in _KINDS and tensor.data_ptr() == alias.data_ptr() and child is inner
            for tensor, child, (inner, alias, _) in zip(live, nodes, seen, strict=True)
        )
        return cls(structure, node, live, seen) if same else None

    def again(self, module: nn.Module) -> tuple[Node, list[Seen]] | None:
        """The node, and the tensors as state_dict() would give them; None: walk it."""
        if not self._structure.holds(module):
            return None
        modules = self._structure.modules()
        if not _gives_its_tensors(modules):
            return None
        if [m._non_persistent_buffers_set for m in modules] != self._hidden:
            return None
        values = self._structure.values()
        live = [values[place] for place in self._places]
        if not self._tensors.are_like(live):
            return None
        return self._node, self._tensors.seen([tensor.detach() for tensor in live])


def _gives_its_tensors(modules: list[nn.Module]) -> bool:
    """Whether only torch's own methods make up the state_dict()."""
    return all(
        getattr(kind, name) is method and method.__module__ == nn.Module.__module__
        for kind in {type(module) for module in modules}
        for name, method in _TORCHS_OWN.items()
    ) and not any(
        m._state_dict_hooks
        or m._state_dict_pre_hooks
        or not vars(m).keys().isdisjoint(_STATE_METHODS)
        for m in modules
    )


class OptimizerRecall:
    """The state of one optimizer, where all of it is tensors that belong to parameters."""

    def __init__(self, optimizer: Optimizer, named: Named, node: Node, seen: list[Seen]) -> None:
        self._named = named
        self._owners = [*map(id, optimizer.state)]
        self._contents = _Contents(list(optimizer.state.values()))
        self._node = node
        self._tensors = _Tensors([tensor for _, tensor, _ in seen], seen)

    @classmethod
    def of(
        cls, optimizer: Optimizer, named: Named, node: Node, seen: list[Seen]
    ) -> OptimizerRecall | None:
        """What `node` and `seen` have come of; None where the next walk may find anything."""
        states = list(optimizer.state.values())
        if not all(type(each) is dict for each in states):
            return None
        values = [*_values(states)]
        found = [tensor for _, tensor, _ in seen]
        if len(values) != len(found) or not all(map(is_, values, found)):
            return None
        if not all(type(tensor) in _KINDS for tensor in found):
            return None
        return cls(optimizer, named, node, seen)

    def again(self, optimizer: Optimizer, named: Named) -> tuple[Node, list[Seen]] | None:
        """The node of the state, and its tensors; None: walk it."""
        states = list(optimizer.state.values())
        if (
            named is not self._named
            or [*map(id, optimizer.state)] != self._owners
            or not all(type(each) is dict for each in states)
            or not self._contents.are_in(states)
        ):
            return None
        live = [*_values(states)]
        return (self._node, self._tensors.seen(live)) if self._tensors.are_like(live) else None


Recall: TypeAlias = ModuleRecall | OptimizerRecall


class Recalls:
    """Of one checkpointer: what the last complete walk found, and what the present one does."""

    def __init__(self) -> None:
        self._structures: dict[int, Structure] = {}
        self._places: list[tuple[tuple[str, ...], Structure]] = []
        self._names: ParameterNames | None = None
        self._objects: dict[str, Recall] = {}
        self._last: Recalls | None = None

    def next(self) -> Recalls:
        """For the walk that begins."""
        following = Recalls()
        following._last = self
        return following

    def keep(self) -> None:
        """The walk is over."""
        self._last = None

    def _structure(self, module: nn.Module) -> Structure:
        """The same object as long as the module is made of the same."""
        known = self._last._structures.get(id(module)) if self._last else None
        if known is None or not known.holds(module):
            known = Structure(module)
        self._structures[id(module)] = known
        return known

    def parameter_names(self, state: object) -> ParameterNames:
        """What the modules of a state call their parameters."""
        if self._names is None:
            found = list(modules_in(state, ()))
            self._places = [(keys, self._structure(module)) for keys, module in found]
            last = self._last
            if last and last._places == self._places and _are_named_by_torch(self._places):
                self._names = last._names
            self._names = self._names or ParameterNames(found)
        return self._names

    def last(self, path: str) -> Recall | None:
        """What was noted there by the last walk."""
        return self._last._objects.get(path) if self._last else None

    def note(self, path: str, recall: Recall | None) -> None:
        """For the next walk."""
        if recall is not None:
            self._objects[path] = recall


def _are_named_by_torch(places: list[tuple[tuple[str, ...], Structure]]) -> bool:
    kinds = {type(module) for _, structure in places for module in structure.modules()}
    return all(
        getattr(kind, name) is method for kind in kinds for name, method in _TORCHS_NAMING.items()
    )
