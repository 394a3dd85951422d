"""What modules and optimizers were at the last save, so that the next need not walk them again.

Between two saves of a run hardly anything changes but bytes in memory. A recall compares by
identity all that the result of a walk depends on: which objects, under which names, of which
kinds. Where they are the same it gives the nodes of the last walk, with the tensors of now. It
keeps nothing alive. What has methods or hooks of its own, which may say something new each time,
is never recalled.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from itertools import chain
from operator import is_
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.optim import Optimizer

from deepfreeze.adapters.torch_optimizers import Named, ParameterNames, modules_in
from deepfreeze.adapters.torch_special import is_special
from deepfreeze.tree import Node

Seen: TypeAlias = tuple[Node, torch.Tensor, str]  # node to fill in, tensor, path

_STATE_METHODS = ("state_dict", "_save_to_state_dict", "get_extra_state")


def _ref(value: object) -> Callable[[], Any]:
    try:
        return type(None) if value is None else weakref.ref(value)
    except TypeError:
        return object  # never the same again


def _are(live: Iterable[object], refs: Iterable[Callable[[], Any]]) -> bool:
    return all(a is b() for a, b in zip(live, refs, strict=True))


class _Names:
    """Names and values of several dicts, one after the other."""

    def __init__(self, dicts: list[dict[Any, Any]]) -> None:
        self._sizes = [len(each) for each in dicts]
        self._keys = [*chain.from_iterable(dicts)]
        self._values = [_ref(value) for each in dicts for value in each.values()]

    def are_in(self, dicts: list[dict[Any, Any]]) -> bool:
        """Whether these dicts have the same names, in the same order, for the same values."""
        return (
            [len(each) for each in dicts] == self._sizes
            and [*chain.from_iterable(dicts)] == self._keys
            and _are(chain.from_iterable(each.values() for each in dicts), self._values)
        )


class Structure:
    """Which modules and tensors a module is made of, and their names."""

    def __init__(self, module: nn.Module) -> None:
        modules = list(module.modules())
        self._modules = [weakref.ref(each) for each in modules]
        self._contents = _Names(_dicts_of(modules))

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


def _dicts_of(modules: list[nn.Module]) -> list[dict[str, Any]]:
    return [
        each for m in modules for each in (m._parameters, m._buffers, m._modules)
    ]  # fmt: skip


class _Tensors:
    """The tensors of one object in the walk's order: their nodes and paths."""

    def __init__(self, live: list[torch.Tensor], seen: list[Seen]) -> None:
        self._refs = [weakref.ref(tensor) for tensor in live]
        self._nodes = [node for node, _, _ in seen]
        self._paths = [path for _, _, path in seen]
        self._kinds = [_kind(tensor) for tensor in live]

    def live(self) -> list[torch.Tensor] | None:
        """The tensors of now; None where one is gone or is of another kind."""
        tensors = [tensor for ref in self._refs if (tensor := ref()) is not None]
        if len(tensors) < len(self._refs):
            return None
        return tensors if [_kind(tensor) for tensor in tensors] == self._kinds else None

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
        self._node = node
        self._tensors = _Tensors(live, seen)

    @classmethod
    def of(cls, structure: Structure, node: Node, seen: list[Seen]) -> ModuleRecall | None:
        """What `node` and `seen` have come of; None where the next walk may find anything."""
        modules = structure.modules()
        if not _gives_its_tensors(modules):
            return None
        live = list(modules[0].state_dict(keep_vars=True).values())
        same = len(live) == len(seen) and all(
            isinstance(tensor, torch.Tensor)
            and not is_special(tensor)
            and tensor.data_ptr() == alias.data_ptr()
            for tensor, (_, alias, _) in zip(live, seen, strict=True)
        )
        return cls(structure, node, live, seen) if same else None

    def again(self, structure: Structure) -> tuple[Node, list[Seen]] | None:
        """The node, and the tensors as state_dict() would give them; None: walk it."""
        modules = structure.modules()
        if structure is not self._structure or not _gives_its_tensors(modules):
            return None
        if [m._non_persistent_buffers_set for m in modules] != self._hidden:
            return None
        live = self._tensors.live()
        if live is None:
            return None
        return self._node, self._tensors.seen([tensor.detach() for tensor in live])


def _gives_its_tensors(modules: list[nn.Module]) -> bool:
    """Whether only torch's own methods make up the state_dict()."""
    return all(
        getattr(kind, name) is getattr(nn.Module, name)
        for kind in {type(module) for module in modules}
        for name in _STATE_METHODS
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
        self._owners = [_ref(parameter) for parameter in optimizer.state]
        self._contents = _Names(list(optimizer.state.values()))
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
        values = [value for each in states for value in each.values()]
        found = [tensor for _, tensor, _ in seen]
        if len(values) != len(found) or not all(map(is_, values, found)):
            return None
        return cls(optimizer, named, node, seen)

    def again(self, optimizer: Optimizer, named: Named) -> tuple[Node, list[Seen]] | None:
        """The node of the state, and its tensors; None: walk it."""
        states = list(optimizer.state.values())
        if (
            named is not self._named
            or len(states) != len(self._owners)
            or not _are(optimizer.state, self._owners)
            or not all(type(each) is dict for each in states)
            or not self._contents.are_in(states)
        ):
            return None
        live = self._tensors.live()
        return None if live is None else (self._node, self._tensors.seen(live))


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

    def structure(self, module: nn.Module) -> Structure:
        """The same object as long as the module is made of the same."""
        known = self._structures.get(id(module))
        if known is None:
            known = self._last._structures.get(id(module)) if self._last else None
            if known is None or not known.holds(module):
                known = Structure(module)
            self._structures[id(module)] = known
        return known

    def parameter_names(self, state: object) -> ParameterNames:
        """What the modules of a state call their parameters."""
        if self._names is None:
            found = list(modules_in(state, ()))
            self._places = [(keys, self.structure(module)) for keys, module in found]
            last = self._last
            same = last is not None and last._places == self._places
            self._names = last._names if last and same else None
            self._names = self._names or ParameterNames(found)
        return self._names

    def last(self, path: str) -> Recall | None:
        """What was noted there by the last walk."""
        return self._last._objects.get(path) if self._last else None

    def note(self, path: str, recall: Recall | None) -> None:
        """For the next walk."""
        if recall is not None:
            self._objects[path] = recall
