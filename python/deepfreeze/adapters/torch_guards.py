"""Guards of optimizers and modules: hooks that stand before, and after, each update."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from deepfreeze.adapters.torch_modules import is_module
from deepfreeze.adapters.torch_optimizers import unwrapped
from deepfreeze.guards import Guard, Mode

Call = Callable[[int], None]  # with the guard's number


class OptimizerGuard:
    """Fences step(), and in after_update mode tells when it is over."""

    def __init__(
        self, optimizer: Optimizer, number: int, mode: Mode, before: Call, after: Call
    ) -> None:
        self.target: object = optimizer
        self.number = number
        self.mode = mode
        self._optimizer = unwrapped(optimizer)
        self._seen: list[Any] = []
        self._tensors: list[Tensor] = []
        self._followers: list[tuple[Tensor, Tensor]] = []
        self._hooks = [self._optimizer.register_step_pre_hook(_hook(before, number))]
        if mode == "after_update":
            self._hooks.append(self._optimizer.register_step_post_hook(_hook(after, number)))

    def tensors(self) -> list[Tensor]:
        self._look()
        return self._tensors

    def followers(self) -> list[tuple[Tensor, Tensor]]:
        # A fused update bumps the version of the step count, and of nothing else.
        self._look()
        return self._followers

    def _look(self) -> None:
        """Sorts out what the optimizer has, unless it has what it had the last time."""
        now: list[Any] = [
            each for group in self._optimizer.param_groups for each in group["params"]
        ]
        for state in self._optimizer.state.values():
            if isinstance(state, dict):
                now += state.values()
        if len(now) == len(self._seen) and all(map(is_, now, self._seen)):
            return
        self._seen = now
        self._tensors = [each for each in now if _is_watchable(each)]
        self._followers = [
            (state["step"], parameter)
            for parameter, state in self._optimizer.state.items()
            if isinstance(state, dict) and _is_watchable(state.get("step"))
        ]

    def detach(self) -> None:
        for hook in self._hooks:
            hook.remove()


class ModuleGuard:
    """Stands before nothing by itself: its parameters are frozen, or changed after ckpt.fence()."""

    mode = "module"

    def __init__(self, module: nn.Module, number: int) -> None:
        self.target: object = module
        self.number = number
        self._module = module

    def tensors(self) -> list[Tensor]:
        return [each for each in self._module.parameters() if _is_watchable(each)]

    def followers(self) -> list[tuple[Tensor, Tensor]]:
        return []

    def detach(self) -> None:
        """It has no hooks."""


def make_guard(target: object, mode: Mode, before: Call, after: Call) -> Callable[[int], Guard]:
    """What makes the guard of an optimizer or a module; TypeError for anything else."""
    if isinstance(target, Optimizer):
        optimizer = target
        return lambda number: OptimizerGuard(optimizer, number, mode, before, after)
    if is_module(target):
        if mode != "window":
            raise ValueError(f"attach: mode {mode!r} is for optimizers, this is a module")
        module = target
        return lambda number: ModuleGuard(module, number)
    raise TypeError(f"attach: a {type(target).__qualname__} is no optimizer and no module of torch")


def _is_watchable(value: object) -> bool:
    # A tensor that was made in inference mode has no version counter.
    return isinstance(value, Tensor) and value.device.type == "cpu" and not value.is_inference()


def _hook(call: Call, number: int) -> Callable[..., None]:
    def hook(*_: object) -> None:
        call(number)

    # As torch.compiler.disable() does, without importing the compiler: a compiled step calls it.
    hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    return hook
