"""How training changes the state of a saver in place: every update adds 1 to every number."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy

Update = Callable[[], object]


def torch_in_place(saver: Any) -> Update:
    torch: Any = importlib.import_module("torch")

    def update() -> None:
        with torch.no_grad():
            for tensor in saver.tensors.values():
                tensor.add_(1.0)

    return update


def torch_optimizer(saver: Any) -> Update:
    """The attached one, as a training has it."""
    torch: Any = importlib.import_module("torch")
    saver.optimizer.param_groups[0]["lr"] = 1.0
    for tensor in saver.tensors.values():
        tensor.grad = torch.full_like(tensor, -1.0)
    step: Update = saver.optimizer.step
    return step


def torch_backward(saver: Any) -> Update:
    update: Update = saver.backward
    return update


def chainer_in_place(saver: Any) -> Update:
    def update() -> None:
        for array in saver.arrays.values():
            numpy.add(array, 1.0, out=array)

    return update


def chainer_optimizer(saver: Any) -> Update:
    saver.optimizer.lr = 1.0
    for parameter in saver.link.params():
        parameter.grad = numpy.full_like(parameter.array, -1.0)
    update: Update = saver.optimizer.update
    return update


def tensorflow_in_place(saver: Any) -> Update:
    library = saver.library
    ones = [library.ones_like(variable) for variable in saver.variables.values()]

    def update() -> None:
        for variable, one in zip(saver.variables.values(), ones, strict=True):
            variable.assign_add(one)

    return update


def jax_donating(saver: Any) -> Update:
    """Arrays are immutable; with donation XLA writes to the same memory where it may."""
    added = saver.jax.jit(lambda array: array + 1.0, donate_argnums=0)

    def update() -> None:
        for name, array in saver.arrays.items():
            saver.arrays[name] = added(array)
        saver.jax.block_until_ready(saver.arrays)

    return update


UPDATES: dict[str, Callable[[Any], Update]] = {
    one.__name__: one
    for one in (
        torch_in_place, torch_optimizer, torch_backward, chainer_in_place, chainer_optimizer,
        tensorflow_in_place, jax_donating,
    )
}  # fmt: skip
