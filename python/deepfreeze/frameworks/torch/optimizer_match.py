"""Restores stored optimizer state into a live optimizer."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from deepfreeze.base.names import join, joined
from deepfreeze.frameworks.class_names import is_same_class, telling_name
from deepfreeze.frameworks.torch.modules import names_of_now
from deepfreeze.frameworks.torch.optimizer_class import ADVICE, Alike
from deepfreeze.frameworks.torch.optimizers import ParameterNames, hooks_of, optimizer_class
from deepfreeze.frameworks.torch.registered import match_registered
from deepfreeze.frameworks.torch.sharded import is_sharded
from deepfreeze.frameworks.torch.tensors import (
    copyable,
    dtype_from_name,
    fill,
    fill_alike,
    form_of,
    is_special,
)
from deepfreeze.state.contracts import Filler
from deepfreeze.state.kinds import ATOMS
from deepfreeze.state.registry import REGISTERED
from deepfreeze.state.tree import Node, leaf_names, mapping_pairs, tag_of

_HOST = torch.device("cpu")


def match_optimizer(
    node: Node, optimizer: Optimizer, path: str, plan: Filler, parameters: ParameterNames
) -> None:
    """Plans how a live optimizer takes stored state."""
    live = optimizer_class(optimizer)
    if tag_of(node) != "object" or node["t"] != "optimizer":
        plan.mismatch(path, node, f"an optimizer, {telling_name(live)}")
        return
    if "class" not in node:  # version 0.1 stored it: it named only the parameters of modules
        parameters = ParameterNames.of_modules(plan.state)
    alike = _alike(node, live, path, plan)
    _OptimizerMatch(node["v"], optimizer, path, plan, parameters, alike).run()


def _alike(node: Node, live: type[Optimizer], path: str, plan: Filler) -> Alike | None:
    """Notes that another class was stored; None if the class is the same, or was not recorded."""
    stored, here = node.get("class"), telling_name(live)
    if stored is None or is_same_class(stored, here):
        return None
    if not any(plan.keys.wants(name) for name in leaf_names(node, path)):
        return None
    alike = Alike(stored, live)
    more = ADVICE if plan.strict else alike.text
    plan.unfit(path, f"stored by {stored}, but live is {here}, another class: {more}")
    return alike


class _OptimizerMatch:
    def __init__(
        self, tree: Node, optimizer: Optimizer, path: str, plan: Filler,
        parameters: ParameterNames, alike: Alike | None,
    ) -> None:  # fmt: skip
        self._optimizer = optimizer
        self._path = path
        self._plan = plan
        self._parameters = parameters
        self._names = parameters.of(optimizer, plan.state).names
        self._alike = alike
        self._takes_state = alike is None or alike.same_state
        self._groups: list[Node] = tree["param_groups"]
        stored = {name for group in self._groups for name in group["params"]}
        renamed = names_of_now(stored, self._names.values()) | self._by_place()
        pairs = mapping_pairs(tree["state"]) or []
        self._states = {renamed.get(name, name): state for name, state in pairs}
        self._stored = {name: mapping_pairs(state) for name, state in self._states.items()}
        self._other: Node = tree.get("other")
        self._by_members: dict[frozenset[str], deque[Node]] = defaultdict(deque)
        for group in self._groups:
            members = frozenset(renamed.get(name, name) for name in group["params"])
            self._by_members[members].append(group)
        self._shapes = {
            renamed.get(name, name): shape
            for group in self._groups
            for name, shape in zip(group["params"], group["shapes"], strict=True)
        }

    def _by_place(self) -> dict[str, str]:
        """The names of tensors that no module has, which version 0.1 stored by their order."""
        stored = {name for group in self._groups for name in group["params"]}
        found = {}
        for g, group in enumerate(self._optimizer.param_groups):
            for i, parameter in enumerate(group["params"]):
                by_order, name = f"group{g}.param{i}", self._names[id(parameter)]
                if by_order in stored and name not in stored:
                    found[by_order] = name
        return found

    def run(self) -> None:
        """Plans parameter groups, then the state of each parameter."""
        self._plan.keys.wants_whole(self._path)  # so that a pattern for all of it counts as used
        unmatched = set(self._shapes)
        path = join(self._path, "state")
        for g, group in enumerate(self._optimizer.param_groups):
            parameters = group["params"]
            names = [self._names[id(parameter)] for parameter in parameters]
            leaders = self._parameters.paths_of(parameters)
            places = joined(path, names)
            for each in zip(parameters, names, leaders, places, strict=True):
                parameter, name, leader, place = each
                if name not in self._shapes:
                    self._plan.miss(place)
                    continue
                unmatched.discard(name)
                with self._plan.following(leader, place):
                    self._match_state(parameter, name, place, group)
            self._match_options(g, group)
        self._say_of_unnamed(sorted(unmatched))
        for name in sorted(unmatched):
            self._plan.surplus(True, join(path, name))
        if self._takes_state:
            self._match_other()
        for hook in hooks_of(self._optimizer, "_optimizer_load_state_dict_post_hooks"):
            self._plan.apply(self._path, partial(hook, self._optimizer))

    def _say_of_unnamed(self, stored: list[str]) -> None:
        """Advice for parameters that had a name in the saved state, but have none in this one."""
        unnamed = [
            f"group{g}.param{i}"
            for g, group in enumerate(self._optimizer.param_groups)
            for i, parameter in enumerate(group["params"])
            if self._names[id(parameter)] == f"group{g}.param{i}"
        ]
        path = join(self._path, "state")
        # Parameters that were stored by their order are missing for another reason.
        unnamed = [name for name in unnamed if name not in self._shapes]
        if unnamed and stored and self._plan.keys.wants_whole(path):
            self._plan.unfit(
                path,
                f"no place of the state names {unnamed[0]} of the live optimizer, but {stored[0]} "
                "is stored: put the tensors, or the module that holds them, into the state under "
                "the names that they had",
            )

    def _match_state(
        self, parameter: torch.Tensor, name: str, path: str, group: dict[str, Any]
    ) -> None:
        if not is_lazy(parameter) and list(parameter.shape) != self._shapes[name]:
            self._plan.unfit(
                path,
                f"stored for a parameter of shape {self._shapes[name]}, "
                f"live for one of shape {list(parameter.shape)}",
            )
            return
        if not self._plan.keys.chooses_all:
            self._plan.keys.wants_whole(path)
        if not self._takes_state:
            return
        live = self._optimizer.state.get(parameter, {})
        pairs = self._stored.get(name, [])
        if pairs is None or not isinstance(live, dict):
            self._plan.mismatch(path, self._states[name], "a state that is not a dict")
            return
        stored = dict(pairs)
        gone = self._chosen([key for key in live if key not in stored], path)
        self._plan.apply(path, lambda: self._forget(parameter, [*gone]))
        places = self._chosen(stored, path)
        filled = self._fill(stored, live, places)
        for key, place in places.items():
            if key not in filled:
                self._match_value(parameter, key, stored[key], live.get(key), place, group)

    def _fill(
        self, stored: dict[Any, Node], live: dict[Any, Any], places: dict[Any, str]
    ) -> set[Any]:
        """Plans to fill live tensors of the stored form; returns their keys."""
        tensors = {key: place for key, place in places.items()
                   if isinstance(live.get(key), torch.Tensor)}  # fmt: skip
        fills = [(stored[key], live[key], place) for key, place in tensors.items()]
        unlike = {path for _, _, path in fill_alike(fills, self._plan)}
        return {key for key, place in tensors.items() if place not in unlike}

    def _chosen(self, keys: Iterable[Any], path: str) -> dict[Any, str]:
        """The names of the values in one container that the caller wants."""
        keys = list(keys)
        places = dict(zip(keys, joined(path, keys), strict=True))
        if self._plan.keys.chooses_all:
            return places
        return {key: place for key, place in places.items() if self._plan.keys.wants(place)}

    def _forget(self, parameter: torch.Tensor, gone: list[Any]) -> None:
        """Drops state that the saved optimizer did not have, so that both have the same."""
        live = self._optimizer.state.get(parameter)
        if live is None:
            return
        for key in gone:
            live.pop(key, None)
        if not live:
            del self._optimizer.state[parameter]

    def _match_value(
        self, parameter: torch.Tensor, key: Any, node: Node, live: Any, path: str,
        group: dict[str, Any],
    ) -> None:  # fmt: skip
        known = REGISTERED.get(type(live))
        if known is not None and isinstance(live, torch.Tensor) and tag_of(node) == "ext":
            remake = match_registered(node, live, known, path, self._plan)
            if remake is not None:
                self._plan.apply(path, lambda: self._put(parameter, key, remake()))
            return
        if self._is_shard(node, parameter):
            self._fill_new_shard(parameter, key, node, path)
            return
        make = self._plan.fresh(node, path)
        on_host = key == "step" and not (group.get("capturable") or group.get("fused"))
        device = torch.device("cpu") if on_host else parameter.device
        self._plan.apply(
            path, lambda: self._put(parameter, key, _moved(make(), device, like=parameter))
        )

    def _put(self, parameter: torch.Tensor, key: Any, value: Any) -> None:
        self._optimizer.state[parameter][key] = value

    def _is_shard(self, node: Node, parameter: torch.Tensor) -> bool:
        """Whether a stored state is cut into shards as its parameter is."""
        if tag_of(node) != "tensor" or not is_sharded(parameter):
            return False
        return form_of(node, self._plan)[1] == tuple(parameter.shape)

    def _fill_new_shard(self, parameter: torch.Tensor, key: Any, node: Node, path: str) -> None:
        dtype = dtype_from_name(form_of(node, self._plan)[0])
        made = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
        fill(node, made, path, self._plan)
        state = self._optimizer.state
        self._plan.apply(path, lambda: state[parameter].__setitem__(key, made))

    def _match_options(self, index: int, group: dict[str, Any]) -> None:
        """Takes the options of the saved group with equal parameters; empty groups go in order."""
        wanted = frozenset(self._names[id(parameter)] for parameter in group["params"])
        same = self._by_members[wanted]
        path = join(join(self._path, "param_groups"), index)
        if not same:
            chosen = any(self._plan.keys.wants(join(path, key)) for key in group)
            if self._plan.strict and chosen:
                self._plan.unfit(path, "no stored group has the same parameters")
            else:
                self._plan.miss(path)
            return
        stored = dict(mapping_pairs(same.popleft()["options"]) or [])
        places = self._chosen(stored, path)
        alike = self._alike
        if alike is not None:
            defaults = self._optimizer.defaults
            places = {key: place for key, place in places.items()
                      if key in group and alike.option(key, defaults)}  # fmt: skip
        filled = self._fill(stored, group, places)
        puts: list[_Put] = []
        for key, place in places.items():
            if key not in filled:
                live = group.get(key)
                device = live.device if isinstance(live, torch.Tensor) else _HOST
                puts.append((key, self._plan.fresh(stored[key], place), device))
        if puts:
            within = [places[key] for key, _, _ in puts]
            self._plan.apply(path, partial(_put_all, group, puts), within)

    def _match_other(self) -> None:
        """State that belongs to no parameter; drops entries that the saved optimizer lacked."""
        state: dict[Any, Any] = self._optimizer.state
        path = join(self._path, "other")
        pairs = mapping_pairs(self._other) or []
        gone = {key for key in state if not isinstance(key, torch.Tensor)} - {k for k, _ in pairs}
        gone = {key for key in gone if self._plan.keys.wants(join(path, key))}
        if gone:
            self._plan.apply(path, lambda: [state.pop(key, None) for key in gone])
        for key, node in pairs:
            place = join(path, key)
            if self._plan.keys.wants_whole(path) or self._plan.keys.wants_whole(place):
                make = self._plan.fresh(node, place)
                self._plan.apply(place, partial(_put_all, state, [(key, make, _HOST)]))


_Put: TypeAlias = tuple[Any, Callable[[], Any], torch.device]  # a key, its value, and where to


def _put_all(target: dict[Any, Any], puts: Iterable[_Put]) -> None:
    for key, make, device in puts:
        value = make()
        target[key] = value if type(value) in ATOMS else _moved(value, device)


def _moved(value: Any, device: torch.device, like: torch.Tensor | None = None) -> Any:
    """A restored value with its tensors on the device, in the layout that the optimizer expects."""
    if type(value) in REGISTERED:
        return value  # a registered type has a layout of its own
    if isinstance(value, torch.Tensor):
        return _in_layout(value.to(device), like)
    if type(value) in (list, tuple):
        return type(value)(_moved(item, device, like) for item in value)
    if type(value) is dict:
        return {key: _moved(item, device, like) for key, item in value.items()}
    return value


def _in_layout(value: torch.Tensor, like: torch.Tensor | None) -> torch.Tensor:
    """The value in the memory format of its parameter: fused kernels walk both side by side."""
    if like is None or is_special(value) or is_special(like) or value.shape != like.shape:
        return value
    out = torch.empty_like(
        like, dtype=value.dtype, device=value.device, memory_format=torch.preserve_format
    ).detach()
    if out.stride() == value.stride():
        return value
    copyable(out).copy_(copyable(value))
    return out
