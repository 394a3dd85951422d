"""The guard of an attached target, from the target's framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from deepfreeze.base.imported import imported
from deepfreeze.state.contracts import Guard, Mode

Call: TypeAlias = Callable[[int], None]  # a method, with the guard's number


def guard_maker(target: object, mode: Mode, before: Call, after: Call) -> Callable[[int], Guard]:
    """A function that makes the target's guard; TypeError if no framework has one for it."""
    if imported("chainer"):
        from deepfreeze.frameworks.chainer import guard as chainer_guard

        if chainer_guard.is_optimizer(target):
            return chainer_guard.make_guard(target, mode, before, after)
    if not imported("torch"):
        kind = type(target).__qualname__
        raise TypeError(f"attach: a {kind} is no optimizer and no module of torch")
    if imported("keras"):
        from deepfreeze.frameworks.keras import guards as keras_guards

        make = keras_guards.guard_maker(target, mode, before)
        if make is not None:
            return make
    from deepfreeze.frameworks.torch import guards as torch_guards

    return torch_guards.make_guard(target, mode, before, after)
