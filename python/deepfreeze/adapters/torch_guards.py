"""Guards of optimizers and modules: hooks that stand before, and after, each update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
        self._hooks = [self._optimizer.register_step_pre_hook(_hook(before, number))]
        if mode == "after_update":
            self._hooks.append(self._optimizer.register_step_post_hook(_hook(after, number)))

    def tensors(self) -> Iterator[Tensor]:
        for group in self._optimizer.param_groups:
            yield from (each for each in group["params"] if _is_watchable(each))
        for state in self._optimizer.state.values():
            yield from (each for each in _values(state) if _is_watchable(each))

    def followers(self) -> Iterator[tuple[Tensor, Tensor]]:
        # A fused update bumps the version of the step count, and of nothing else.
        for parameter, state in self._optimizer.state.items():
            count = state.get("step") if isinstance(state, dict) else None
            if isinstance(parameter, Tensor) and isinstance(count, Tensor) and _is_watchable(count):
                yield count, parameter

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

    def tensors(self) -> Iterator[Tensor]:
        return (each for each in self._module.parameters() if _is_watchable(each))

    def followers(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(())

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


def _values(state: Any) -> Iterator[Any]:
    return iter(state.values()) if isinstance(state, dict) else iter(())


def _is_watchable(value: object) -> bool:
    # A tensor that was made in inference mode has no version counter.
    return isinstance(value, Tensor) and value.device.type == "cpu" and not value.is_inference()


def _hook(call: Call, number: int) -> Callable[..., None]:
    def hook(*_: object) -> None:
        call(number)

    # As torch.compiler.disable() does, without importing the compiler: a compiled step calls it.
    hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    return hook
