"""The state of Chainer's optimizers that serialize() leaves out, or that they make only later."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import chainer  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

_SCALING = ("_loss_scale", "_loss_scaling_isnan_ever")
_MASTER = "_fp32_param"
_HYPERPARAMETERS = "_hyperparam/"
_NUMBERS = (bool, int, float, np.number)
_KNOWN = ("t", "enabled")  # of a rule: serialised already; set by the program


@dataclass(frozen=True)
class Rule:
    """The update rule of one parameter. `path` is the prefix of its names, with "/" at the end."""

    path: str
    param: Any
    rule: Any

    @property
    def has_master(self) -> bool:
        """Whether its updates are made in single precision, on a copy of its own (mixed16).

        If the parameter has no dtype yet, this is a guess: its first use will tell, or the stored
        values.
        """
        is_known = self.param.array is not None
        return bool(self.rule._use_fp32_update) and (not is_known or self.param.dtype == np.float16)

    def first_state(self) -> dict[str, Any]:
        """The state that its first update would make, in new arrays; None for unknown shapes."""
        is_known = self.param.array is not None
        param = self.param
        if self.has_master or not is_known:
            param = chainer.Variable(np.empty(param.shape if is_known else 1, np.float32))
        twin = copy.copy(self.rule)
        twin._state = {}
        twin.init_state(param)
        return dict(twin.state) if is_known else dict.fromkeys(twin.state)

    def new_master(self) -> Any:
        """Memory for its copy in single precision; None if the shape is not known."""
        return None if self.param.array is None else np.empty(self.param.shape, np.float32)


def rules_of(optimizer: Any, prefix: str = "") -> Iterator[Rule]:
    """The rules of an optimizer's parameters; one with two places in the model comes twice."""
    for name, param in optimizer.target.namedparams():
        rule = getattr(param, "update_rule", None)
        if rule is not None:
            yield Rule(f"{prefix}{name.strip('/')}/", param, rule)


def left_out(optimizers: Mapping[str, Any]) -> dict[str, Any]:
    """The state that serialize() does not give, under names that are free in its own output.

    `optimizers` are given by the prefix of their names, "" if one has its own place in the state.
    The state is the masters of mixed16, and numbers: the dynamic loss scale, counts of rules
    (MSVAG), and the hyperparameters of an optimizer outside a trainer. A trainer's extensions
    compute those of its optimizers from the values of a new program, so these are left out.
    """
    found = {name: getattr(holder, key) for name, holder, key in _numbers_of(optimizers)}
    for prefix, optimizer in optimizers.items():
        for each in rules_of(optimizer, prefix):
            if each.has_master and each.rule._fp32_param is not None:
                found[each.path + _MASTER] = each.rule._fp32_param.array
    return found


def put_left_out(optimizers: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Sets the values that left_out() has given."""
    for name, holder, key in _numbers_of(optimizers):
        setattr(holder, key, values[name])
    for prefix, optimizer in optimizers.items():
        for each in rules_of(optimizer, prefix):
            if each.has_master:
                _put_master(each, values.get(each.path + _MASTER))


def _put_master(each: Rule, array: Any) -> None:
    master = each.rule._fp32_param
    if array is None:
        each.rule._fp32_param = None  # saved before the first update, which makes a new one
    elif master is None or master.array is not array:
        each.rule._fp32_param = chainer.Parameter(array, name=each.param.name)


def _numbers_of(optimizers: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """For each number that serialize() leaves out: its name, its owner, and the attribute."""
    for prefix, optimizer in optimizers.items():
        if optimizer._loss_scaling_is_dynamic:
            yield from ((prefix + key, optimizer, key) for key in _SCALING)
        if not prefix:
            yield from _hyperparameters(prefix, getattr(optimizer, "hyperparam", None))
        for each in rules_of(optimizer, prefix):
            yield from ((each.path + key, each.rule, key) for key in _numbers_in(each.rule))
            if not prefix:
                yield from _hyperparameters(each.path, each.rule.hyperparam)


def _hyperparameters(path: str, holder: Any) -> Iterator[tuple[str, Any, str]]:
    for key in _numbers_in(holder):
        yield f"{path}{_HYPERPARAMETERS}{key}", holder, key


def _numbers_in(holder: Any) -> list[str]:
    """The attributes that are numbers: no others change by themselves."""
    members = vars(holder) if holder is not None else {}
    return [
        key
        for key, value in members.items()
        if _is_number(value) and not key.startswith("_") and key not in _KNOWN
    ]


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "biufc"
    return isinstance(value, _NUMBERS)


@dataclass
class Later:
    """How the live optimizers' state differs from the saved one, because updates make it."""

    made: dict[str, Any] = field(default_factory=dict)  # memory to fill; None: unknown shape
    gone: dict[str, Any] = field(default_factory=dict)  # the rules whose state was not made yet


def made_later(optimizers: Mapping[str, Any], stored: Collection[str]) -> Later:
    """Compares the optimizers' state with the stored names. Changes nothing."""
    later = Later()
    first: dict[int, dict[str, Any]] = {}  # a parameter in two places has one rule
    masters: dict[int, dict[str, Any]] = {}
    for prefix, optimizer in optimizers.items():
        for each in rules_of(optimizer, prefix):
            rule = each.rule
            if id(rule) not in first:
                first[id(rule)] = each.first_state() if rule.state is None else rule.state
                masters[id(rule)] = {_MASTER: each.new_master()} if each.has_master else {}
            for known, live in ((first, rule.state), (masters, rule._fp32_param)):
                names = {each.path + key: array for key, array in known[id(rule)].items()}
                if not any(name in stored for name in names):
                    later.gone |= dict.fromkeys(names, rule)
                elif live is None:
                    later.made |= names
    return later
