"""What Chainer's optimizers hold, and their own serialize() leaves out or makes only later."""

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
_KNOWN = ("t", "enabled")  # of a rule: serialised, and the program's own to say


@dataclass(frozen=True)
class Rule:
    """How one parameter is updated. `path`: its names begin so, with "/" at the end."""

    path: str
    param: Any
    rule: Any

    @property
    def has_master(self) -> bool:
        """Whether its updates are made in single precision, on a copy of its own (mixed16).

        Perhaps so, where its first use will say of which dtype it is, or what is stored of it.
        """
        is_known = self.param.array is not None
        return bool(self.rule._use_fp32_update) and (not is_known or self.param.dtype == np.float16)

    def first_state(self) -> dict[str, Any]:
        """What its first update would make, in new arrays; None for those of unknown shape."""
        is_known = self.param.array is not None
        param = self.param
        if self.has_master or not is_known:
            param = chainer.Variable(np.empty(param.shape if is_known else 1, np.float32))
        twin = copy.copy(self.rule)
        twin._state = {}
        twin.init_state(param)
        return dict(twin.state) if is_known else dict.fromkeys(twin.state)

    def new_master(self) -> Any:
        """Memory for its copy in single precision; None where the shape is not known."""
        return None if self.param.array is None else np.empty(self.param.shape, np.float32)


def rules_of(optimizer: Any, prefix: str = "") -> Iterator[Rule]:
    """Those of its parameters; one that is in two places of the model comes twice."""
    for name, param in optimizer.target.namedparams():
        rule = getattr(param, "update_rule", None)
        if rule is not None:
            yield Rule(f"{prefix}{name.strip('/')}/", param, rule)


def left_out(optimizers: Mapping[str, Any]) -> dict[str, Any]:
    """By names that its own could be: the state that serialize() does not give.

    Optimizers go by what their names begin with, "" where one has its own place in the state.
    Masters of mixed16, and numbers: the dynamic loss scale, what rules count by themselves (MSVAG),
    and the hyperparameters of an optimizer by itself. Those of a trainer's are what its extensions
    make of a new program's: they start from them.
    """
    found = {name: getattr(holder, key) for name, holder, key in _numbers_of(optimizers)}
    for prefix, optimizer in optimizers.items():
        for each in rules_of(optimizer, prefix):
            if each.has_master and each.rule._fp32_param is not None:
                found[each.path + _MASTER] = each.rule._fp32_param.array
    return found


def put_left_out(optimizers: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Sets what left_out() names, from its values."""
    for name, holder, key in _numbers_of(optimizers):
        setattr(holder, key, values[name])
    for prefix, optimizer in optimizers.items():
        for each in rules_of(optimizer, prefix):
            if each.has_master:
                _put_master(each, values.get(each.path + _MASTER))


def _put_master(each: Rule, array: Any) -> None:
    master = each.rule._fp32_param
    if array is None:
        each.rule._fp32_param = None  # it was saved before the first update, which makes one
    elif master is None or master.array is not array:
        each.rule._fp32_param = chainer.Parameter(array, name=each.param.name)


def _numbers_of(optimizers: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """The name of each number that serialize() leaves out, who holds it, and as what."""
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
    """Numbers only: nothing else changes by itself."""
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
    """What the live optimizers have other than those that were saved: it comes with an update."""

    made: dict[str, Any] = field(default_factory=dict)  # memory to fill; None: its shape is unknown
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
