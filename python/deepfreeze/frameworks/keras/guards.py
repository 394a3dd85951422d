"""The guard of a Keras optimizer on the torch backend, which updates in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from deepfreeze.frameworks.torch.guards import Call, Hook, is_watchable
from deepfreeze.state.contracts import Guard, Mode, refuse_other_mode

# Both write: the second swaps the averages in at the end of fit().
_WRITERS = ("apply", "finalize_variable_values")


class KerasOptimizerGuard(Guard):
    """Fences an optimizer's updates: its methods are wrapped, as Keras has no hook there."""

    mode = "window"

    def __init__(self, optimizer: Any, number: int, before: Call) -> None:
        self.target: object = optimizer
        self.number = number
        self._optimizer = optimizer
        _unwrap(optimizer)
        self._hook = Hook(before, number)
        for name in _WRITERS:
            # This bypasses Keras's __setattr__, which looks for variables in the value.
            vars(optimizer)[name] = _Fenced(self._hook, getattr(optimizer, name))

    def owned(self) -> list[Any]:
        variables = [*self._optimizer._trainable_variables, *self._optimizer.variables]
        return [each._value for each in variables]

    def can_watch(self, value: Any) -> bool:
        return is_watchable(value)

    def detach(self) -> None:
        for name in _WRITERS:
            method = vars(self._optimizer).get(name)
            while isinstance(method, _Fenced):
                method.release(self._hook)
                method = method.method
        _unwrap(self._optimizer)


class _Fenced:
    """A method that calls a fence first."""

    def __init__(self, hook: Hook, method: Callable[..., Any]) -> None:
        self._hook: Any = hook
        self.method = method

    @property
    def is_over(self) -> bool:
        """Whether no checkpointer is left to be called; a copy of the optimizer has none."""
        return bool(getattr(self._hook, "dead", True))

    def release(self, hook: Hook) -> None:
        """Stops calling `hook`, if this fence belongs to it."""
        if self._hook is hook:
            self._hook = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self._hook is not None:
            self._hook()
        return self.method(*arguments, **named)


def _unwrap(optimizer: Any) -> None:
    """Removes the outer wrappers whose checkpointer is gone."""
    for name in _WRITERS:
        method = vars(optimizer).pop(name, None)
        while isinstance(method, _Fenced) and method.is_over:
            method = method.method
        if isinstance(method, _Fenced):
            vars(optimizer)[name] = method


def guard_maker(target: object, mode: Mode, before: Call) -> Callable[[int], Guard] | None:
    """A function that makes the guard of a Keras optimizer; None for any other object.

    TypeError on the other backends, which need no guard.
    """
    if not isinstance(target, keras.optimizers.Optimizer):
        return None
    backend = keras.backend.backend()
    if backend != "torch":
        raise TypeError(
            f"attach: on the {backend} backend of Keras nothing writes the arrays that save() "
            "holds: no optimizer need be attached"
        )
    refuse_other_mode(mode, "optimizers of torch, this one is Keras's")
    return lambda number: KerasOptimizerGuard(target, number, before)
