"""Guards of optimizers and modules: hooks that run before and after each update."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from deepfreeze import _core
from deepfreeze.frameworks.torch import device as torch_device
from deepfreeze.frameworks.torch.optimizers import unwrapped
from deepfreeze.frameworks.torch.recall import ModuleParameters, roll_call
from deepfreeze.frameworks.torch.sharded import copies_of, local_of
from deepfreeze.frameworks.torch.tensors import ordinal_of
from deepfreeze.state.contracts import Guard, Mode, RollCall, TensorMemory, refuse_other_mode

Call = Callable[[int], None]  # a method, with the guard's number
_KINDS = (Tensor, nn.Parameter)


class OptimizerGuard(Guard):
    """Fences step(), and in after_update mode tells when the step is over."""

    def __init__(
        self, optimizer: Optimizer, number: int, mode: Mode, before: Call, after: Call
    ) -> None:
        self.target: object = optimizer
        self.number = number
        self.mode = mode
        self._optimizer = unwrapped(optimizer)
        _remove_dead_hooks(self._optimizer)
        kind = _AfterClosure if _calls_closure_first(self._optimizer) else Hook
        self._hooks = [self._optimizer.register_step_pre_hook(kind(before, number))]
        if mode == "after_update":
            self._hooks.append(self._optimizer.register_step_post_hook(Hook(after, number)))

    def owned(self) -> list[Any]:
        return _locals(self._values())

    def _values(self) -> list[Any]:
        values: list[Any] = []
        for group in self._optimizer.param_groups:
            values += group["params"]
        for state in self._optimizer.state.values():
            if isinstance(state, dict):
                values += state.values()
        return values

    def objects(self) -> list[Any] | None:
        groups = [group["params"] for group in self._optimizer.param_groups]
        found = _core.objects_in(groups, self._optimizer.state)
        return self._values() + self._names() if found is None else found

    def roll_call(self, owned: Sequence[Any]) -> RollCall | None:
        places = roll_call(_tensors_in(owned))
        return None if places is None else _RollCall(owned, self._names, places)

    def _names(self) -> list[object]:
        """The owner of each state, and the names of its values: followers depend on these."""
        states = self._optimizer.state
        dicts = [*filter(_is_dict, states.values())]
        return [*states, *chain.from_iterable((len(each), *each) for each in dicts)]

    def can_watch(self, value: Any) -> bool:
        return is_watchable(value)

    def memory(self, *, is_whole: bool) -> list[TensorMemory]:
        # Its first update will make its state.
        return _memory_of(self._values()) if is_whole or self._optimizer.state else []

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, Tensor)

    def follower_of(self, tensor: Tensor) -> Tensor | None:
        # A fused update bumps the version of the step count, and of nothing else.
        state = self._optimizer.state.get(tensor)
        count = state.get("step") if isinstance(state, dict) else None
        return count if is_watchable(count) else None

    def detach(self) -> None:
        for hook in self._hooks:
            hook.remove()


class ModuleGuard(Guard):
    """Has no fence by itself: its parameters are frozen, or changed after ckpt.fence()."""

    mode = "module"

    def __init__(self, module: nn.Module, number: int) -> None:
        self.target: object = module
        self.number = number
        self._parameters = ModuleParameters(module)

    def owned(self) -> list[Any]:
        return _locals(self._parameters.now())

    def objects(self) -> list[Any] | None:
        return self._parameters.now()

    def roll_call(self, owned: Sequence[Any]) -> RollCall | None:
        places = roll_call(_tensors_in(owned))
        return None if places is None else _RollCall(owned, list, places)

    def can_watch(self, value: Any) -> bool:
        return is_watchable(value)

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, Tensor)

    def detach(self) -> None:
        """Does nothing: it has no hooks."""


class _RollCall:
    """Tensors by their places and kinds, as the parts of DTensors are new objects each time.

    Other values count by their identity alone: they are not watched.
    """

    def __init__(
        self, owned: Sequence[Any], names: Callable[[], list[object]], places: _core.RollCall
    ) -> None:
        """`names`: other objects that answers depend on, by identity."""
        self._names = names
        self._objects = self._objects_now(owned)
        self._places = places

    def _objects_now(self, owned: Sequence[Any]) -> list[int]:
        others = [0 if type(each) in _KINDS else id(each) for each in owned]
        return [*others, *map(id, self._names())]

    def holds(self, owned: Sequence[Any]) -> bool:
        if self._objects_now(owned) != self._objects:
            return False
        return self._places.answer(_tensors_in(owned)) is not None


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


def _tensors_in(values: Sequence[Any]) -> list[Tensor]:
    return [value for value in values if type(value) in _KINDS]


def _locals(values: Iterable[Any]) -> list[Any]:
    return [value if type(value) in _KINDS else local_of(value) for value in values]


def _memory_of(values: list[Any]) -> list[TensorMemory]:
    found = []
    for value, mine in zip(values, _locals(values), strict=True):
        if not is_watchable(mine) or (ordinal := ordinal_of(mine)) is None:
            continue
        storage = mine.untyped_storage()
        copies = None if mine is value else copies_of(value)
        found.append(
            TensorMemory(mine.nbytes, storage.data_ptr(), storage.nbytes(), ordinal, copies)
        )
    return found


def make_guard(target: object, mode: Mode, before: Call, after: Call) -> Callable[[int], Guard]:
    """A function that makes the guard of an optimizer or module; TypeError for other objects."""
    if isinstance(target, Optimizer):
        optimizer = target
        return lambda number: OptimizerGuard(optimizer, number, mode, before, after)
    if isinstance(target, nn.Module):
        refuse_other_mode(mode, "optimizers, this is a module")
        module = target
        return lambda number: ModuleGuard(module, number)
    raise TypeError(f"attach: a {type(target).__qualname__} is no optimizer and no module of torch")


def is_watchable(value: Any) -> bool:
    """Whether it has memory to copy and a version counter.

    Lazy and sparse tensors, and those of inference mode, don't.
    """
    return (
        type(value) in _KINDS
        and (value.is_cpu or torch_device.ordinal_of(value) is not None)
        and value.layout is torch.strided
        and not value.is_inference()
    )


class Hook:
    """Calls a guard's fence or release, while there is a checkpointer to be called."""

    # As torch.compiler.disable() does, without importing the compiler: a compiled step calls it.
    _torchdynamo_disable = True

    def __init__(self, call: Call, number: int) -> None:
        self._call = weakref.WeakMethod(call)  # an optimizer must not keep the engine alive
        self._number = number

    @property
    def dead(self) -> bool:
        """Whether the checkpointer to call is gone."""
        return self._call() is None

    def __call__(self, *_: object) -> None:
        call = self._call()
        if call is not None:
            call(self._number)

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing, ()  # a copy of the optimizer is not attached


class _AfterClosure(Hook):
    """A fence for step(closure) that comes after the closure, which has forward and backward.

    Otherwise trainers that give a closure, as Lightning does, would wait before forward and
    backward, beside which a capture should run.
    """

    def __call__(self, *step: Any) -> Any:
        _, arguments, options = step
        closure = arguments[1] if len(arguments) > 1 else options.get("closure")
        if closure is None:
            return super().__call__()
        if len(arguments) > 1:
            return (arguments[0], self._after(closure), *arguments[2:]), options
        return arguments, {**options, "closure": self._after(closure)}

    def _after(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def gradients() -> Any:
            loss = closure()
            super(_AfterClosure, self).__call__()
            return loss

        return gradients


def _calls_closure_first(optimizer: Optimizer) -> bool:
    """Whether its step() changes nothing before it has called its closure, as torch's own do."""
    return type(optimizer).step.__module__.startswith("torch.optim.")


def _remove_dead_hooks(optimizer: Optimizer) -> None:
    """Removes the hooks of dropped checkpointers now: the drop may have come within a step()."""
    for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        hooks = vars(optimizer).get(name, {})  # a wrapper may have none
        for key in [key for key, hook in hooks.items() if isinstance(hook, Hook) and hook.dead]:
            del hooks[key]


def _nothing() -> Callable[..., None]:
    return _pass


def _pass(*_: object) -> None:
    """The hook of a copy."""
