"""State that two classes of optimizers share, for a restore into another class than was saved."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch
from torch.optim import Optimizer

from deepfreeze.frameworks.class_names import base_names, is_same_class

# Options of groups that mean the same in all classes; momentum, betas and eps do not.
_OPTIONS = frozenset({"lr", "initial_lr", "weight_decay"})
ADVICE = (
    "build the one that was saved, or restore with strict=False, which takes the parts that both "
    "share"
)


class Alike:
    """The state of a class called `stored` that an optimizer of the class `live` can take.

    Options that no class has a default for (a group's name, for example) are the program's own, and
    are taken. State that belongs to parameters means the same only if one class extends the other,
    as AdamW extends Adam.
    """

    def __init__(self, stored: str, live: type[Optimizer]) -> None:
        relative = _extended_by(live, stored) or _extending(live, stored)
        self.same_state = relative is not None
        self._kinds = [live] if relative is None else [live, relative]

    def option(self, key: str, defaults: dict[str, Any]) -> bool:
        """Whether an option of a group is taken."""
        if key in _OPTIONS or key not in defaults:
            return True
        # An option that a class sets itself (AdamW: decoupled_weight_decay) belongs to the class.
        return self.same_state and all(
            key in inspect.signature(kind).parameters for kind in self._kinds
        )

    @property
    def text(self) -> str:
        """The entries that are taken, for messages."""
        if self.same_state:
            return "taken are its state and all options that a program can choose"
        return "taken are the learning rate and weight decay of its groups"


def _extended_by(live: type[Optimizer], stored: str) -> type | None:
    """The base called `stored`, unless code that `live` adds to it concerns state."""
    for kind, name in zip(live.__mro__, base_names(live), strict=True):
        if is_same_class(stored, name):
            return kind
        if any("state" in code.co_names for code in _codes_in(kind)):
            return None
    return None


def _extending(live: type[Optimizer], stored: str) -> type | None:
    """The class called `stored`, if torch has it and it is a subclass of `live`."""
    package, _, name = stored.partition(".")
    kind = getattr(torch.optim, name, None) if package == "torch" else None
    return kind if isinstance(kind, type) and issubclass(kind, live) else None


def _codes_in(kind: type) -> Iterator[CodeType]:
    """The code that a class adds to its bases'; torch wraps an inherited step() in it."""
    for name, value in vars(kind).items():
        code = _code_of(value)
        inherited = (_code_of(vars(base).get(name)) for base in kind.__mro__[1:])
        if name != "__init__" and code is not None and code not in inherited:
            yield from _nested(code)


def _code_of(value: Any) -> CodeType | None:
    function = inspect.unwrap(value) if callable(value) else value
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _nested(inner)
