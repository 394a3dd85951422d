"""The classes of objects, under names that survive moves from one module to another.

`torch.optim.adam.Adam` and `torch.optim.Adam` are both "torch.Adam". A class of an installed
package goes by that package and its own name, a class of the program by its own name alone, so
that it may move from the script into a module. A subclass that adds nothing goes by its base.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

# Members of a class body that don't change the behaviour of finished objects.
_ADDS_NOTHING = frozenset({
    "__module__", "__qualname__", "__doc__", "__init__", "__annotations__", "__dict__",
    "__weakref__", "__firstlineno__", "__static_attributes__", "__annotate__", "__annotate_func__",
    "__orig_bases__", "__parameters__", "__repr__", "__abstractmethods__", "_abc_impl",
})  # fmt: skip
_INSTALLED = frozenset({"site-packages", "dist-packages"})
# One package under several names, and classes whose state is that of another.
_PACKAGES = {"lightning_fabric": "lightning", "pytorch_lightning": "lightning"}
_CLASSES = {"torch.ShardedGradScaler": "torch.GradScaler"}
# Wrappers that only pass calls on, and the attribute that holds the real object.
_PASS_ON = {
    ("accelerate", "AcceleratedScheduler"): "scheduler",
    ("accelerate", "AcceleratedOptimizer"): "optimizer",
}


def class_name(value: object) -> str:
    """The name of an object's class, as checkpoints record it.

    It includes the classes of schedulers or optimizers whose state is within the object's state.
    """
    kind = _telling(type(value))
    inner = _PASS_ON.get((_top(kind), kind.__qualname__))
    if inner is not None and inner in vars(value):
        return class_name(vars(value)[inner])
    within = ", ".join(map(class_name, _within(value)))
    return f"{_name(kind)}[{within}]" if within else _name(kind)


def telling_name(kind: type) -> str:
    """The name of a class; a class that adds nothing has the name of its base."""
    return _name(_telling(kind))


def _name(kind: type) -> str:
    own = kind.__qualname__.rpartition("<locals>.")[2]
    top = _top(kind)
    name = f"{_PACKAGES.get(top, top)}.{own}" if _is_installed(top) else own
    return _CLASSES.get(name, name)


def is_same_class(stored: str, live: str) -> bool:
    """Whether both names may mean one class.

    A class of the program may have been installed since, or the other way round; a class that
    torch has is never one of the program's.
    """
    (there, one), (here, other) = _parted(stored), _parted(live)
    if one != other:
        return False
    return there == here or ("" in (there, here) and "torch" not in (there, here))


def base_names(kind: type) -> list[str]:
    """The names of a class and of all its bases."""
    return [*map(_name, kind.__mro__)]


def _within(value: object) -> list[object]:
    members, bases = getattr(value, "__dict__", {}), base_names(type(value))
    schedulers = members.get("_schedulers")
    if isinstance(schedulers, (list, tuple)) and "torch.LRScheduler" in bases:
        return list(schedulers)
    if "torch.Optimizer" not in bases:
        return []
    return [
        inner
        for inner in members.values()
        if inner is not value and "torch.Optimizer" in base_names(type(inner))
    ]


def _parted(name: str) -> tuple[str, str]:
    top, _, own = name.partition(".")
    # If a class of the program is nested, the first part is the name of a class, too.
    return (top, own) if own and not top[:1].isupper() else ("", name)


def _telling(kind: type) -> type:
    """The class itself, or its base if it only changes how an object is made."""
    while len(kind.__bases__) == 1 and kind.__bases__[0] is not object and not _adds(kind):
        kind = kind.__bases__[0]
    return kind


def _adds(kind: type) -> bool:
    base = kind.__bases__[0]
    # Unwrapped, because torch puts a profiled step() into the class of the first object.
    return any(
        _unwrapped(value) is not _unwrapped(getattr(base, name, None))
        for name, value in vars(kind).items()
        if name not in _ADDS_NOTHING
    )


def _unwrapped(value: Any) -> Any:
    return inspect.unwrap(value) if callable(value) else value


def _top(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _is_installed(top: str) -> bool:
    if top in ("torch", "__main__"):
        return top == "torch"
    path = getattr(sys.modules.get(top), "__file__", None) or ""
    return not _INSTALLED.isdisjoint(path.replace("\\", "/").split("/"))
