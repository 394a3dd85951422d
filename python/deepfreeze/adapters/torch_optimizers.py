"""Optimizers: state by parameter name, restored with its saved dtype.

Optimizer.load_state_dict is not used: it casts state to the parameter's dtype. All options of the
parameter groups are restored as saved, foreach, fused and capturable among them. An optimizer
whose class has a state_dict or load_state_dict of its own, or that has hooks which change what
they give or take, is treated like any other object.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from deepfreeze.adapters.torch_modules import is_module
from deepfreeze.adapters.torch_names import canonical_names, names_of_now
from deepfreeze.adapters.torch_registered import match_registered
from deepfreeze.adapters.torch_sharded import is_sharded
from deepfreeze.adapters.torch_special import is_special
from deepfreeze.adapters.torch_tensors import (
    copyable,
    dtype_from_name,
    dtype_name,
    fill,
    form_of,
)
from deepfreeze.names import KeyTable, join
from deepfreeze.registry import registered_for
from deepfreeze.tree import Node, tag_of
from deepfreeze.walk import mapping_pairs

if TYPE_CHECKING:
    from deepfreeze.capture import Capture
    from deepfreeze.plan import Plan

Placed: TypeAlias = tuple[tuple[str, ...], nn.Module]  # the keys that lead to a module, and it

_NOT_OPTIONS = frozenset({"params", "param_names"})  # names differ between wrapped and bare modules


def is_optimizer(value: object) -> TypeGuard[Optimizer]:
    """Whether `value` is an optimizer with torch's own state_dict, possibly wrapped."""
    if not isinstance(value, Optimizer):
        return False
    inner = unwrapped(value)
    return not (
        _has_own_format(inner)
        or _hooks(inner, "_optimizer_state_dict_post_hooks")
        or _hooks(inner, "_optimizer_load_state_dict_pre_hooks")
    )


def _hooks(optimizer: Optimizer, name: str) -> list[Callable[..., Any]]:
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


class ParameterNames:
    """The names that the modules of a state give to their parameters, found by identity."""

    def __init__(self, modules: Iterable[Placed]) -> None:
        self._names: dict[int, tuple[str, ...]] = {}  # the keys that lead to it, its name last
        self._known: dict[int, Named] = {}  # by optimizer
        for keys, module in modules:
            canonical = canonical_names(module)
            for name, parameter in module.named_parameters(remove_duplicate=False):
                self._names.setdefault(id(parameter), (*keys, canonical(name)))

    def path_of(self, parameter: torch.Tensor) -> str | None:
        """Where the parameter is in the state; None if no module of the state has it."""
        place = self._names.get(id(parameter))
        return None if place is None else _full_name(place)

    def of(self, optimizer: Optimizer) -> Named:
        """The names of an optimizer's parameters: the same as long as it has the same."""
        known = self._known.get(id(optimizer))
        if known is None or not known.holds(optimizer):
            known = self._known[id(optimizer)] = Named(optimizer, self._names_of(optimizer))
        return known

    def _names_of(self, optimizer: Optimizer) -> dict[int, str]:
        places: dict[int, tuple[str, ...]] = {}
        for g, group in enumerate(optimizer.param_groups):
            for i, parameter in enumerate(group["params"]):
                fallback = (f"group{g}.param{i}",)
                places[id(parameter)] = self._names.get(id(parameter), fallback)
        counts = Counter(place[-1] for place in places.values())
        table = KeyTable()
        # Sorted, and equal ones as the modules come, so that the suffixes of equal names do not
        # depend on the order of the groups.
        order = {key: i for i, key in enumerate(self._names)}
        by_place = sorted(places.items(), key=lambda item: (item[1], order.get(item[0], 0)))
        names = {
            key: table.take(place[-1] if counts[place[-1]] == 1 else _full_name(place))
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

    def group_nodes(
        self, optimizer: Optimizer, path: str, capture: Capture
    ) -> list[dict[str, Node]]:
        """Of each group the names and shapes of its parameters."""
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


def _full_name(place: tuple[str, ...]) -> str:
    return join(reduce(join, place[:-1], ""), place[-1])


def modules_in(state: object, keys: tuple[str, ...]) -> Iterator[Placed]:
    """The modules among a state's values, and the keys that lead to each after `keys`."""
    if is_module(state):
        yield keys, state
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from modules_in(value, (*keys, str(key)))
    elif isinstance(state, (list, tuple)):
        for index, value in enumerate(state):
            yield from modules_in(value, (*keys, str(index)))


def encode_optimizer(
    optimizer: Optimizer, path: str, capture: Capture, named: Named, state: Node
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
    return {"$": "object", "t": "optimizer", "v": tree}


def encode_state(optimizer: Optimizer, path: str, capture: Capture, named: Named) -> Node:
    """The node of the state that belongs to parameters, by their names."""
    names = named.names
    state = {names[id(key)]: value for key, value in optimizer.state.items() if id(key) in names}
    return capture.encode(state, join(path, "state"))


def run_state_hooks(optimizer: Optimizer) -> None:
    """What state_dict() would do before it looks."""
    for hook in _hooks(optimizer, "_optimizer_state_dict_pre_hooks"):
        hook(optimizer)


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in _NOT_OPTIONS}


def match_optimizer(
    node: Node, optimizer: Optimizer, path: str, plan: Plan, parameters: ParameterNames
) -> None:
    """Plans how stored optimizer state gets into a live optimizer."""
    if tag_of(node) != "object" or node["t"] != "optimizer":
        plan.mismatch(path, node, f"an optimizer, {type(optimizer).__qualname__}")
        return
    _OptimizerMatch(node["v"], optimizer, path, plan, parameters).run()


class _OptimizerMatch:
    def __init__(
        self,
        tree: Node,
        optimizer: Optimizer,
        path: str,
        plan: Plan,
        parameters: ParameterNames,
    ) -> None:
        self._optimizer = optimizer
        self._path = path
        self._plan = plan
        self._parameters = parameters
        self._names = parameters.of(optimizer).names
        self._groups: list[Node] = tree["param_groups"]
        stored = (name for group in self._groups for name in group["params"])
        renamed = names_of_now(stored, self._names.values())
        pairs = mapping_pairs(tree["state"]) or []
        self._stored = {renamed.get(name, name): state for name, state in pairs}
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

    def run(self) -> None:
        """Plans parameter groups, then the state of each parameter."""
        self._plan.keys.wants_whole(self._path)  # so that a pattern for all of it counts as used
        unmatched = set(self._shapes)
        for g, group in enumerate(self._optimizer.param_groups):
            for parameter in group["params"]:
                name = self._names[id(parameter)]
                place = join(join(self._path, "state"), name)
                if name not in self._shapes:
                    self._plan.miss(place)
                    continue
                unmatched.discard(name)
                with self._plan.following(self._parameters.path_of(parameter), place):
                    self._match_state(parameter, name, place, group)
            self._match_options(g, group)
        for name in sorted(unmatched):
            self._plan.surplus(True, join(join(self._path, "state"), name))
        self._match_other()
        for hook in _hooks(self._optimizer, "_optimizer_load_state_dict_post_hooks"):
            self._plan.apply(self._path, partial(hook, self._optimizer))

    def _match_state(
        self, parameter: torch.Tensor, name: str, path: str, group: dict[str, Any]
    ) -> None:
        if not is_lazy(parameter) and list(parameter.shape) != self._shapes[name]:
            self._plan.unfit(
                path,
                f"stored for a parameter {self._shapes[name]}, "
                f"live for one {list(parameter.shape)}",
            )
            return
        self._plan.keys.wants_whole(path)
        live = self._optimizer.state.get(parameter, {})
        pairs = mapping_pairs(self._stored[name]) if name in self._stored else []
        if pairs is None or not isinstance(live, dict):
            self._plan.mismatch(path, self._stored[name], "a state that is not a dict")
            return
        kept = {key for key, _ in pairs}
        gone = [key for key in live if key not in kept and self._plan.keys.wants(join(path, key))]
        self._plan.apply(path, lambda: self._forget(parameter, gone))
        for key, node in pairs:
            if self._plan.keys.wants(join(path, key)):
                self._match_value(parameter, key, node, live.get(key), join(path, key), group)

    def _forget(self, parameter: torch.Tensor, gone: list[Any]) -> None:
        """Drops what the saved optimizer did not have, so that both hold the same."""
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
        if isinstance(live, torch.Tensor) and self._same_tensor(node, live):
            fill(node, live, path, self._plan)
            return
        known = registered_for(live)
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
        """Whether it is to be cut as its parameter is."""
        if tag_of(node) != "tensor" or not is_sharded(parameter):
            return False
        return form_of(node, self._plan)[1] == tuple(parameter.shape)

    def _fill_new_shard(self, parameter: torch.Tensor, key: Any, node: Node, path: str) -> None:
        dtype = dtype_from_name(form_of(node, self._plan)[0])
        made = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
        fill(node, made, path, self._plan)
        state = self._optimizer.state
        self._plan.apply(path, lambda: state[parameter].__setitem__(key, made))

    def _same_tensor(self, node: Node, live: torch.Tensor) -> bool:
        if tag_of(node) != "tensor" or is_special(live):
            return False
        return form_of(node, self._plan) == (dtype_name(live.dtype), tuple(live.shape))

    def _match_options(self, index: int, group: dict[str, Any]) -> None:
        """Those of the saved group with the same parameters; of empty ones, the next."""
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
        stored = same.popleft()
        for key, node in mapping_pairs(stored["options"]) or []:
            place = join(path, key)
            if not self._plan.keys.wants(place):
                continue
            live = group.get(key)
            if isinstance(live, torch.Tensor) and self._same_tensor(node, live):
                fill(node, live, place, self._plan)
                continue
            device = live.device if isinstance(live, torch.Tensor) else torch.device("cpu")
            make = self._plan.fresh(node, place)
            self._plan.apply(place, _setter(group, key, make, device))

    def _match_other(self) -> None:
        """State that belongs to no parameter; what the saved optimizer did not have is dropped."""
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
                self._plan.apply(place, _setter(state, key, make, torch.device("cpu")))


def _setter(
    target: Any, key: Any, make: Callable[[], Any], device: torch.device
) -> Callable[[], None]:
    def put() -> None:
        target[key] = _moved(make(), device)

    return put


def _moved(value: Any, device: torch.device, like: torch.Tensor | None = None) -> Any:
    """Tensors within a restored value where, and as, the optimizer expects them."""
    if registered_for(value) is not None:
        return value  # whose layout is its own
    if isinstance(value, torch.Tensor):
        return _in_layout(value.to(device), like)
    if type(value) in (list, tuple):
        return type(value)(_moved(item, device, like) for item in value)
    if type(value) is dict:
        return {key: _moved(item, device, like) for key, item in value.items()}
    return value


def _in_layout(value: torch.Tensor, like: torch.Tensor | None) -> torch.Tensor:
    """In the memory format of its parameter: fused kernels walk both side by side."""
    if like is None or is_special(value) or is_special(like) or value.shape != like.shape:
        return value
    out = torch.empty_like(
        like, dtype=value.dtype, device=value.device, memory_format=torch.preserve_format
    ).detach()
    if out.stride() == value.stride():
        return value
    copyable(out).copy_(copyable(value))
    return out
