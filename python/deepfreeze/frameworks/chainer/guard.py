"""The guard of a Chainer optimizer: a hook that runs before each of its updates."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import chainer  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

from deepfreeze.frameworks.chainer.adapter import warn_if_untested
from deepfreeze.frameworks.chainer.optimizers import rules_of
from deepfreeze.state.contracts import Guard, Mode, refuse_other_mode

Call = Callable[[int], None]  # a method, with the guard's number
_numbers = itertools.count(1)  # several checkpointers may guard one optimizer


def is_optimizer(target: object) -> bool:
    """Whether `target` is an optimizer of Chainer."""
    return isinstance(target, chainer.Optimizer)


def has_hooks(target: object) -> bool:
    """Whether `target` is an optimizer whose update() calls hooks before it writes."""
    return isinstance(target, chainer.GradientMethod)


def make_guard(target: Any, mode: Mode, before: Call, after: Call) -> Callable[[int], Guard]:
    """A function that makes an optimizer's guard; TypeError or ValueError if none is possible."""
    warn_if_untested()
    kind = type(target).__qualname__
    if not has_hooks(target):
        raise TypeError(f"attach: a {kind} is no GradientMethod, whose update() calls hooks")
    if target.target is None:
        raise ValueError(f"attach: call setup() of this {kind} first")
    refuse_other_mode(mode, f"optimizers of torch, this is a {kind}")
    return lambda number: OptimizerGuard(target, number, before)


@dataclass(frozen=True)
class _Memory:
    """An array as a Watch sees a tensor. It counts no versions; the native witness compares it."""

    array: np.ndarray[Any, Any]
    _version: int = 0

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def is_contiguous(self) -> bool:
        return True  # for all that can be watched


class OptimizerGuard(Guard):
    """Fences update(), which writes parameters and their state in place."""

    mode = "window"

    def __init__(self, optimizer: Any, number: int, before: Call) -> None:
        self.target: object = optimizer
        self.number = number
        self._optimizer = optimizer
        self._name = f"deepfreeze-{next(_numbers)}"
        _remove_dead_fences(optimizer)
        optimizer.add_hook(_Fence(before, number), name=self._name, timing="pre")
        _hooks_of(optimizer).move_to_end(self._name, last=False)  # another hook may write

    def owned(self) -> list[Any]:
        """The present arrays: SMORMS3 makes new state in each update, mixed16 new parameters."""
        if self._name not in _hooks_of(self._optimizer):
            return []  # setup() has removed the fence: save() copies everything
        return [_Memory(array) for array in self._arrays() if isinstance(array, np.ndarray)]

    def _arrays(self) -> Iterator[Any]:
        for each in rules_of(self._optimizer):
            yield each.param.array
            yield from (each.rule.state or {}).values()
            if each.rule._fp32_param is not None:
                yield each.rule._fp32_param.array

    def can_watch(self, value: Any) -> bool:
        return isinstance(value, _Memory) and bool(value.array.flags.c_contiguous)

    def detach(self) -> None:
        if self._name in _hooks_of(self._optimizer):
            self._optimizer.remove_hook(self._name)


class _Fence:
    """Calls a guard's fence, while there is a checkpointer to be called."""

    def __init__(self, call: Call, number: int) -> None:
        self._call = weakref.WeakMethod(call)  # an optimizer must not keep the engine alive
        self._number = number

    @property
    def dead(self) -> bool:
        """Whether the checkpointer to call is gone."""
        return self._call() is None

    def __call__(self, optimizer: Any) -> None:
        call = self._call()
        if call is not None:
            call(self._number)

    def __reduce__(self) -> tuple[Any, ...]:
        return _no_fence, ()  # a copy of the optimizer is not attached


def _hooks_of(optimizer: Any) -> OrderedDict[str, Any]:
    """The hooks before an update; setup() begins with none."""
    hooks: OrderedDict[str, Any] = optimizer._hookable._pre_update_hooks
    return hooks


def _remove_dead_fences(optimizer: Any) -> None:
    """Removes dropped checkpointers' fences now; the drop may have been within an update()."""
    fences = {name: hook for name, hook in _hooks_of(optimizer).items() if isinstance(hook, _Fence)}
    for name in [name for name, fence in fences.items() if fence.dead]:
        optimizer.remove_hook(name)


def _no_fence() -> Callable[[Any], None]:
    return _pass


def _pass(_: Any) -> None:
    """The hook of a copy."""
