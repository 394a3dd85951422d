"""Remembers modules and optimizers from the last save, so that the next need not walk them again.

Between two saves of a run hardly anything changes but bytes in memory. A recall checks everything
that the result of a walk depends on: the same places hold the same objects, under the same names
and of the same kinds. Then it gives the nodes of the last walk, with the tensors that lie in those
places now. It refers to tensors by place only: a weak reference would keep torch from swapping
them. Objects with methods or hooks of their own are never recalled: these may give new values.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter, is_, methodcaller
from typing import Any, Self, TypeAlias

import torch
from torch import nn
from torch.optim import Optimizer

from deepfreeze import _core
from deepfreeze.frameworks.torch.optimizers import (
    Named,
    ParameterNames,
    has_other_state,
    modules_in,
)
from deepfreeze.state.tree import Node

_VERSION = "_version"  # of the layout of a module's state
_STATE_METHODS = ("state_dict", "_save_to_state_dict", "get_extra_state")
_TORCHS_OWN = {name: getattr(nn.Module, name) for name in _STATE_METHODS}
_NAMING_METHODS = ("parameters", "named_parameters", "_named_members", "modules", "named_modules")
_TORCHS_NAMING = {name: getattr(nn.Module, name) for name in _NAMING_METHODS}
_DICTS = ("_parameters", "_buffers", "_modules")
_KINDS = (torch.Tensor, nn.Parameter)  # no subclasses: a recall does not know their additions


def _values(dicts: list[dict[Any, Any]]) -> Iterator[Any]:
    return chain.from_iterable(map(methodcaller("values"), dicts))


@dataclass(slots=True)
class Segment:
    """Tensors that a walk saw one after another: lists side by side, as there may be thousands."""

    begin: int  # the place of its first tensor
    nodes: list[Node] = field(default_factory=list)  # their keys are to be filled in
    paths: list[str] = field(default_factory=list)
    # For each tensor that has not moved since it was last stored, the storage that holds its
    # memory.
    storages: list[torch.UntypedStorage | None] = field(default_factory=list)
    is_recalled: bool = False  # its lists of nodes and paths belong to a recall

    def since(self, place: int) -> Segment:
        """The segment without the tensors before `place`."""
        at = max(0, place - self.begin)
        return Segment(self.begin + at, self.nodes[at:], self.paths[at:], self.storages[at:])


@dataclass(slots=True)
class Seen:
    """The tensors of a state in the walk's order.

    A recalled object is one segment: none of its thousands of nodes and names is touched.
    """

    tensors: list[torch.Tensor] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)  # the places of tensors without a storage

    def __len__(self) -> int:
        return len(self.tensors)

    @property
    def nodes(self) -> list[Node]:
        """All nodes."""
        return _joined([segment.nodes for segment in self.segments])

    @property
    def paths(self) -> list[str]:
        """All paths."""
        return _joined([segment.paths for segment in self.segments])

    def in_segments(self, places: Iterable[int]) -> Iterator[tuple[Segment, int]]:
        """The segment of each tensor, and its place there. `places` ascend."""
        number = 0
        for place in places:
            while place >= self.segments[number].begin + len(self.segments[number].nodes):
                number += 1
            yield self.segments[number], place - self.segments[number].begin

    def node_of(self, tensor: torch.Tensor, path: str) -> Node:
        """Adds a dense tensor, and gives it a node; None for a sparse or quantised one."""
        if tensor.layout is not torch.strided or tensor.is_quantized:
            return None
        # The walk's end fills in the key; here "k" only gets its place after the tag.
        node: Node = {"$": "tensor", "k": ""}
        if not tensor.is_cpu:
            node["device"] = str(tensor.device)
        self.add(node, tensor, path)
        return node

    def add(self, node: Node, tensor: torch.Tensor, path: str) -> None:
        """Adds a tensor of which nothing is known."""
        if not self.segments or self.segments[-1].is_recalled:
            self.segments.append(Segment(len(self.tensors)))
        segment = self.segments[-1]
        self.moved.append(len(self.tensors))
        self.tensors.append(tensor)
        segment.nodes.append(node)
        segment.paths.append(path)
        segment.storages.append(None)

    def extend(self, other: Seen) -> None:
        """Adds all tensors of `other`, which a recall gave, at the end."""
        begin = len(self.tensors)
        self.moved += [begin + place for place in other.moved]
        self.tensors += other.tensors
        self.segments += [
            Segment(
                begin + segment.begin,
                segment.nodes,
                segment.paths,
                segment.storages,
                is_recalled=True,
            )
            for segment in other.segments
            if segment.nodes
        ]

    def since(self, begin: int) -> Seen:
        """The tensors from one place on, as if nothing were known of them."""
        tensors = self.tensors[begin:]
        first = bisect_right(self.segments, begin, key=attrgetter("begin")) - 1
        segments = [segment.since(begin) for segment in self.segments[max(0, first) :]]
        nodes = _joined([segment.nodes for segment in segments])
        paths = _joined([segment.paths for segment in segments])
        return Seen(tensors, [Segment(0, nodes, paths, [None] * len(nodes))], [*range(len(nodes))])


def _joined(lists: list[list[Any]]) -> list[Any]:
    return lists[0] if len(lists) == 1 else [*chain.from_iterable(lists)]


class Structure:
    """Which modules and tensors a module is made of, and their names."""

    def __init__(self, modules: list[nn.Module]) -> None:
        """`modules`: all modules of one, which comes first."""
        self._modules = _core.Modules(modules, [*_STATE_METHODS, _VERSION])

    def kinds_in(self, module: nn.Module) -> set[type] | None:
        """The types of all its modules; None if it does not consist of the same objects."""
        return self._modules.kinds_if_same(module)

    def choose(self, values: list[Any]) -> bool:
        """Chooses the values that values_in() gives; False if the modules lack one of them."""
        return self._modules.choose(values)

    def values_in(self, module: nn.Module) -> tuple[list[Any], set[type]] | None:
        """The values in the chosen places, and the modules' types.

        None if its state_dict() may give other values.
        """
        found = self._modules.values_if_same(module)
        return found if found and _use_torchs_methods(found[1]) else None


_MISSES_MAX = 3


class ModuleParameters:
    """The parameters of one module, found without a walk while it consists of the same objects."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._modules: _core.Modules | None = None
        self._misses = 0  # one after the other; some modules are never known

    def now(self) -> list[Any]:
        """Those that its parameters() gives."""
        found = self._modules and self._modules.values_if_same(self._module)
        if found and are_named_by_torch(found[1]):
            self._misses = 0
            return found[0]
        parameters = list(self._module.parameters())
        self._misses += 1
        if self._misses > _MISSES_MAX:
            self._modules = None
            return parameters
        modules = _core.Modules(list(self._module.modules()), [*_NAMING_METHODS])
        self._modules = modules if modules.choose(parameters) else None
        return parameters


class _Tensors:
    """The tensors of one object, in the walk's order: their nodes, paths and kinds."""

    def __init__(
        self,
        live: list[torch.Tensor],
        nodes: list[Node],
        paths: list[str],
        kinds: _core.TensorKinds | None = None,
    ) -> None:
        self._nodes = nodes
        self._paths = paths
        self._kinds = _core.TensorKinds(live) if kinds is None else kinds
        self._roll = roll_call(live)

    def again(self, live: list[torch.Tensor]) -> tuple[_Tensors, Seen] | None:
        """The recall for the next save, and the tensors to store; None if they need a walk."""
        storages = None if self._roll is None else self._roll.answer(live)
        if storages is not None:
            return self, self._seen(live, storages, [])
        if not self._kinds.match(live):
            return None
        # A new object: if the walk fails, the result of the last complete one must remain.
        moved = _Tensors(live, self._nodes, self._paths, self._kinds)
        count = len(live)
        return moved, self._seen(live, [None] * count, [*range(count)])

    def _seen(
        self,
        live: list[torch.Tensor],
        storages: list[torch.UntypedStorage | None],
        moved: list[int],
    ) -> Seen:
        return Seen(live, [Segment(0, self._nodes, self._paths, storages)], moved)


def roll_call(tensors: list[torch.Tensor]) -> _core.RollCall | None:
    """Their places in memory; None if one has no memory on the host."""
    try:
        return _core.RollCall(tensors)
    except Exception:  # a sparse tensor, one on another device: walked each time
        return None


class _OfTensors:
    """A recall of an object in which only tensors can move."""

    _tensors: _Tensors

    def _with(self, tensors: _Tensors) -> Self:
        if tensors is self._tensors:
            return self
        other = copy(self)
        other._tensors = tensors
        return other


class ModuleRecall(_OfTensors):
    """One module that gives its state by torch's own methods, and all of it in tensors."""

    def __init__(
        self, structure: Structure, versions: dict[int, object], node: Node,
        live: list[torch.Tensor], seen: Seen,
    ) -> None:  # fmt: skip
        self._structure = structure
        self._versions = versions  # of the types, which the modules keep alive
        self._node = node
        self._tensors = _Tensors(live, seen.nodes, seen.paths)

    @classmethod
    def of(cls, module: nn.Module, node: Node, seen: Seen) -> ModuleRecall | None:
        """The recall of a module with its `node` and `seen`; None if the next walk may differ."""
        modules = list(module.modules())
        if not _give_their_tensors(modules):
            return None
        live = list(module.state_dict(keep_vars=True).values())
        nodes = list(node["v"].values())
        same = len(live) == len(seen) == len(nodes) and all(
            type(tensor) in _KINDS and tensor.data_ptr() == alias.data_ptr() and child is inner
            for tensor, child, inner, alias in zip(
                live, nodes, seen.nodes, seen.tensors, strict=True
            )
        )
        structure, versions = Structure(modules), _versions_of({*map(type, modules)})
        if not same or not all(type(each) in (int, type(None)) for each in versions.values()):
            return None  # a property may give another version the next time
        known = structure.choose(live)  # not so if a submodule is hidden from modules()
        return cls(structure, versions, node, live, seen) if known else None

    def again(self, module: nn.Module) -> tuple[ModuleRecall, Node, Seen] | None:
        """The recall for the next save, the node, and the tensors; None if it needs a walk."""
        live = self._structure.values_in(module)
        if live is None or _versions_of(live[1]) != self._versions:
            return None
        found = self._tensors.again(live[0])
        return found and (self._with(found[0]), self._node, found[1])


def _versions_of(kinds: set[type]) -> dict[int, object]:
    """The versions of the layouts of these types' states, which the node names."""
    return {id(kind): getattr(kind, _VERSION, None) for kind in kinds}


def _use_torchs_methods(kinds: set[type]) -> bool:
    """Whether these types of modules have torch's own methods for state_dict()."""
    return all(
        getattr(kind, name) is method and method.__module__ == nn.Module.__module__
        for kind in kinds
        for name, method in _TORCHS_OWN.items()
    )


def _give_their_tensors(modules: list[nn.Module]) -> bool:
    """Whether only torch's own methods make up the state_dict()."""
    return _use_torchs_methods({*map(type, modules)}) and not any(
        m._state_dict_hooks
        or m._state_dict_pre_hooks
        or not vars(m).keys().isdisjoint((*_STATE_METHODS, _VERSION))
        for m in modules
    )


class OptimizerRecall(_OfTensors):
    """The state of one optimizer, if all of it is tensors that belong to parameters."""

    def __init__(self, optimizer: Optimizer, named: Named, node: Node, seen: Seen) -> None:
        self._named = named
        self._owners = [*map(id, optimizer.state)]
        self._contents = _core.Contents(list(optimizer.state.values()))
        self.has_other = has_other_state(optimizer, named)  # depends on the owners alone
        self._node = node
        self._tensors = _Tensors(seen.tensors, seen.nodes, seen.paths)

    @classmethod
    def of(
        cls, optimizer: Optimizer, named: Named, node: Node, seen: Seen
    ) -> OptimizerRecall | None:
        """The recall of an optimizer's `node` and `seen`; None if the next walk may differ."""
        states = list(optimizer.state.values())
        if not all(type(each) is dict for each in states):
            return None
        values = [*_values(states)]
        if len(values) != len(seen) or not all(map(is_, values, seen.tensors)):
            return None
        if not all(type(tensor) in _KINDS for tensor in values):
            return None
        return cls(optimizer, named, node, seen)

    def again(
        self, optimizer: Optimizer, named: Named
    ) -> tuple[OptimizerRecall, Node, Seen] | None:
        """The recall for the next save, the node, and the tensors; None if it needs a walk."""
        if named is not self._named or [*map(id, optimizer.state)] != self._owners:
            return None
        live = self._contents.values_if_in(list(optimizer.state.values()))
        found = None if live is None else self._tensors.again(live)
        return found and (self._with(found[0]), self._node, found[1])


class DictRecall(_OfTensors):
    """A dict of names and tensors, such as a state_dict(), whichever objects hold the memory."""

    def __init__(self, mapping: dict[str, torch.Tensor], node: Node, seen: Seen) -> None:
        self._kind = type(mapping)
        self._names = [*mapping]
        self._node = node
        self._tensors = _Tensors(seen.tensors, seen.nodes, seen.paths)

    @classmethod
    def of(cls, mapping: dict[Any, Any], node: Node, seen: Seen) -> DictRecall | None:
        """The recall of a dict with its `node` and `seen`; None if not all values are tensors."""
        same = len(seen) == len(mapping) and all(map(is_, mapping.values(), seen.tensors))
        return cls(mapping, node, seen) if same else None

    def again(self, mapping: dict[Any, Any]) -> tuple[DictRecall, Node, Seen] | None:
        """The recall for the next save, the node, and the tensors; None if it needs a walk."""
        if type(mapping) is not self._kind or not self._are_names_of(mapping):
            return None
        found = self._tensors.again([*mapping.values()])
        return found and (self._with(found[0]), self._node, found[1])

    def _are_names_of(self, mapping: dict[Any, Any]) -> bool:
        return [*mapping] == self._names and set(map(type, mapping)) == {str}


ObjectRecall: TypeAlias = ModuleRecall | OptimizerRecall

# The number of tensors before, and the path. Several objects can have one path ("a.b", and "b" in
# "a"), and the nodes of each are those of its own place in the walk.
At: TypeAlias = tuple[int, str]


@dataclass
class Recalls:
    """A checkpointer's recalls: from its last complete walk, and from the present one."""

    _last: Recalls | None = None
    _structures: dict[int, Structure] = field(default_factory=dict)
    _places: list[tuple[tuple[str, ...], Structure]] = field(default_factory=list)
    _names: ParameterNames | None = None
    _objects: dict[At, ObjectRecall] = field(default_factory=dict)
    _dicts: dict[At, DictRecall] = field(default_factory=dict)

    def keep(self) -> None:
        """The walk is over: forgets the one before."""
        self._last = None

    def _structure(self, module: nn.Module) -> tuple[Structure, set[type]]:
        """The module's structure, the same object while the module is unchanged, and its types."""
        known = self._last._structures.get(id(module)) if self._last else None
        kinds = None if known is None else known.kinds_in(module)
        if known is None or kinds is None:
            modules = list(module.modules())
            known, kinds = Structure(modules), {*map(type, modules)}
        self._structures[id(module)] = known
        return known, kinds

    def parameter_names(self, state: object) -> ParameterNames:
        """The names of parameters in the modules of a state."""
        if self._names is None:
            found = list(modules_in(state, ()))
            known_kinds = [self._structure(module) for _, module in found]
            self._places = [
                (keys, known) for (keys, _), (known, _) in zip(found, known_kinds, strict=True)
            ]
            kinds = set().union(*(each for _, each in known_kinds))
            last = self._last
            if last and last._places == self._places and are_named_by_torch(kinds):
                known = last._names
                self._names = known if known is not None and known.hold_in(state) else None
            self._names = self._names or ParameterNames(found)
        return self._names

    def last(self, at: At) -> ObjectRecall | None:
        """The recall that the last walk noted there."""
        return self._last._objects.get(at) if self._last else None

    def note(self, at: At, recall: ObjectRecall | None) -> None:
        """Notes a recall for the next walk."""
        if recall is not None:
            self._objects[at] = recall

    def last_dict(self, at: At) -> DictRecall | None:
        """The recall of a dict that the last walk noted there."""
        return self._last._dicts.get(at) if self._last else None

    def note_dict(self, at: At, recall: DictRecall | None) -> None:
        """Notes a recall of a dict for the next walk."""
        if recall is not None:
            self._dicts[at] = recall


def are_named_by_torch(kinds: set[type]) -> bool:
    """Whether torch's own methods name their parameters, from dicts of the modules' own."""
    return all(
        getattr(kind, name) is method for kind in kinds for name, method in _TORCHS_NAMING.items()
    ) and not any(hasattr(kind, name) for kind in kinds for name in _DICTS)
