"""Optimizers: state by parameter name, restored with its saved dtype.

Optimizer.load_state_dict is not used: it casts state to the parameter's dtype. All options of the
parameter groups are restored as saved, foreach, fused and capturable among them. An optimizer
class with a state_dict or load_state_dict of its own is treated like any other object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import nn
from torch.optim import Optimizer

from deepfreeze.adapters.torch_modules import canonical_names, is_module
from deepfreeze.adapters.torch_special import is_special
from deepfreeze.adapters.torch_tensors import dtype_name, fill, form_of
from deepfreeze.names import join
from deepfreeze.tree import Node, tag_of
from deepfreeze.walk import mapping_pairs

if TYPE_CHECKING:
    from deepfreeze.capture import Capture
    from deepfreeze.plan import Plan

_NOT_OPTIONS = frozenset({"params", "param_names"})  # names differ between wrapped and bare modules


def is_optimizer(value: object) -> TypeGuard[Optimizer]:
    """Whether `value` is an optimizer with torch's own state_dict, possibly wrapped."""
    if not isinstance(value, Optimizer):
        return False
    inner = unwrapped(value)
    return (
        type(inner).state_dict is Optimizer.state_dict
        and type(inner).load_state_dict is Optimizer.load_state_dict
        and "state_dict" not in vars(inner)
    )


def unwrapped(optimizer: Optimizer) -> Optimizer:
    """The optimizer inside wrappers such as accelerate's."""
    inner = vars(optimizer).get("optimizer")
    while isinstance(inner, Optimizer):
        optimizer, inner = inner, vars(inner).get("optimizer")
    return optimizer


class ParameterNames:
    """The names that the modules of a state give to their parameters, found by identity."""

    def __init__(self, state: object) -> None:
        self._names: dict[int, tuple[str, str]] = {}  # of a parameter: within its module, in full
        for path, module in _modules_in(state, ""):
            canonical = canonical_names(module)
            for name, parameter in module.named_parameters(remove_duplicate=False):
                short = canonical(name)
                self._names.setdefault(id(parameter), (short, join(path, short)))

    def of(self, optimizer: Optimizer) -> dict[int, str]:
        """A name for each parameter of an optimizer, different from all others."""
        short: dict[int, str] = {}
        full: dict[int, str] = {}
        for g, group in enumerate(optimizer.param_groups):
            for i, parameter in enumerate(group["params"]):
                fallback = f"group{g}.param{i}"
                names = self._names.get(id(parameter), (fallback, fallback))
                short[id(parameter)], full[id(parameter)] = names
        counts: dict[str, int] = {}
        for name in short.values():
            counts[name] = counts.get(name, 0) + 1
        return {key: name if counts[name] == 1 else full[key] for key, name in short.items()}


def _modules_in(state: object, path: str) -> Iterator[tuple[str, nn.Module]]:
    if is_module(state):
        yield path, state
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from _modules_in(value, join(path, key))
    elif isinstance(state, (list, tuple)):
        for index, value in enumerate(state):
            yield from _modules_in(value, join(path, index))


def encode_optimizer(
    optimizer: Optimizer, path: str, capture: Capture, parameters: ParameterNames
) -> Node:
    """The node of an optimizer."""
    names = parameters.of(optimizer)
    state: dict[str, Any] = {}
    other: dict[Any, Any] = {}
    for key, value in optimizer.state.items():
        if id(key) in names:
            state[names[id(key)]] = value
        else:
            other[key] = value
    groups = [_group_tree(group, names) for group in optimizer.param_groups]
    tree: dict[str, Any] = {"state": state, "param_groups": groups}
    if other:
        tree["other"] = other
    return {"$": "object", "t": "optimizer", "v": capture.encode(tree, path)}


def _group_tree(group: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    return {
        "params": [names[id(parameter)] for parameter in group["params"]],
        "shapes": [list(parameter.shape) for parameter in group["params"]],
        "options": {key: value for key, value in group.items() if key not in _NOT_OPTIONS},
    }


def match_optimizer(
    node: Node, optimizer: Optimizer, path: str, plan: Plan, parameters: ParameterNames
) -> None:
    """Plans how stored optimizer state gets into a live optimizer."""
    if tag_of(node) != "object" or node["t"] != "optimizer":
        plan.mismatch(path, node, f"an optimizer, {type(optimizer).__qualname__}")
        return
    _OptimizerMatch(node["v"], optimizer, path, plan, parameters.of(optimizer)).run()


class _OptimizerMatch:
    def __init__(
        self, tree: Node, optimizer: Optimizer, path: str, plan: Plan, names: dict[int, str]
    ) -> None:
        self._optimizer = optimizer
        self._path = path
        self._plan = plan
        self._names = names
        self._stored = dict(mapping_pairs(tree["state"]) or [])
        self._groups: list[Node] = tree["param_groups"]
        self._other: Node = tree.get("other")
        self._shapes = {
            name: shape
            for group in self._groups
            for name, shape in zip(group["params"], group["shapes"], strict=True)
        }

    def run(self) -> None:
        """Plans parameter groups, then the state of each parameter."""
        unmatched = set(self._shapes)
        for g, group in enumerate(self._optimizer.param_groups):
            for parameter in group["params"]:
                name = self._names[id(parameter)]
                place = join(join(self._path, "state"), name)
                if name not in self._shapes:
                    self._plan.miss(place)
                    continue
                unmatched.discard(name)
                self._match_state(parameter, name, place, group)
            self._match_options(g, group)
        for name in sorted(unmatched):
            self._plan.surplus(True, join(join(self._path, "state"), name))
        if self._other is not None:
            self._match_other()

    def _match_state(
        self, parameter: torch.Tensor, name: str, path: str, group: dict[str, Any]
    ) -> None:
        if list(parameter.shape) != self._shapes[name]:
            self._plan.fault(
                f"{path}: stored for a parameter {self._shapes[name]}, "
                f"live for one {list(parameter.shape)}"
            )
            return
        live = self._optimizer.state.get(parameter, {})
        pairs = mapping_pairs(self._stored[name]) if name in self._stored else []
        if pairs is None or not isinstance(live, dict):
            self._plan.mismatch(path, self._stored[name], "a state that is not a dict")
            return
        if self._plan.keys.chooses_all:
            self._plan.apply(path, lambda: self._forget(parameter, [key for key, _ in pairs or []]))
        for key, node in pairs:
            if self._plan.keys.wants(join(path, key)):
                self._match_value(parameter, key, node, live.get(key), join(path, key), group)

    def _forget(self, parameter: torch.Tensor, kept: list[Any]) -> None:
        """Drops what the saved optimizer did not have, so that both hold the same."""
        live = self._optimizer.state.get(parameter)
        if live is None:
            return
        for key in [key for key in live if key not in kept]:
            del live[key]
        if not kept:
            del self._optimizer.state[parameter]

    def _match_value(
        self, parameter: torch.Tensor, key: Any, node: Node, live: Any, path: str,
        group: dict[str, Any],
    ) -> None:  # fmt: skip
        if isinstance(live, torch.Tensor) and self._same_tensor(node, live):
            fill(node, live, path, self._plan)
            return
        make = self._plan.fresh(node, path)
        on_host = key == "step" and not (group.get("capturable") or group.get("fused"))
        device = torch.device("cpu") if on_host else parameter.device
        state = self._optimizer.state
        self._plan.apply(path, lambda: state[parameter].update({key: _moved(make(), device)}))

    def _same_tensor(self, node: Node, live: torch.Tensor) -> bool:
        if tag_of(node) != "tensor" or is_special(live):
            return False
        return form_of(node, self._plan) == (dtype_name(live.dtype), tuple(live.shape))

    def _match_options(self, index: int, group: dict[str, Any]) -> None:
        """The saved group with the same parameters, or the one at the same place."""
        wanted = {self._names[id(parameter)] for parameter in group["params"]}
        stored = next((g for g in self._groups if set(g["params"]) == wanted), None)
        path = join(join(self._path, "param_groups"), index)
        if stored is None:
            if self._plan.strict and self._plan.keys.chooses_all:
                self._plan.fault(f"{path}: no stored group has the same parameters")
            return
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
        make = self._plan.fresh(self._other, self._path)
        self._plan.apply(self._path, lambda: self._optimizer.state.update(make()))


def _setter(
    target: Any, key: Any, make: Callable[[], Any], device: torch.device
) -> Callable[[], None]:
    def put() -> None:
        target[key] = _moved(make(), device)

    return put


def _moved(value: Any, device: torch.device) -> Any:
    """Tensors within a restored value on the device where the optimizer expects them."""
    if device.type == "cpu":
        return value
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if type(value) in (list, tuple):
        return type(value)(_moved(item, device) for item in value)
    if type(value) is dict:
        return {key: _moved(item, device) for key, item in value.items()}
    return value
