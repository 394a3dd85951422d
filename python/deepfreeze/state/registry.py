"""Types that a program registers: a name, and functions to a plain value and back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any

from deepfreeze.errors import CheckpointError


@dataclass(frozen=True)
class RegisteredType:
    """How values of one class are stored."""

    cls: type
    name: str
    to_tree: Callable[[Any], object]
    from_tree: Callable[[Any], object]
    is_flattened: bool = False  # a tensor subclass, taken apart by __tensor_flatten__


REGISTERED: dict[type, RegisteredType] = {}  # by exact class
REGISTERED_NAMES: dict[str, RegisteredType] = {}


def register_type(
    cls: type,
    name: str,
    to_tree: Callable[[Any], object] | None = None,
    from_tree: Callable[[Any], object] | None = None,
) -> None:
    """Lets a state hold values whose type is exactly `cls`.

    `to_tree` gives a value that can already be stored; `from_tree` makes the original of it. A
    tensor subclass with __tensor_flatten__ and __tensor_unflatten__, as torch.compile needs them,
    can do without: its tensors are stored, and the context that __tensor_flatten__ gives.
    `name` is written into every checkpoint: it must stay the same as long as they are read.
    """
    if not isinstance(cls, type) or not name or type(name) is not str:
        raise TypeError("register_type: a class and a name are needed")
    is_flattened = to_tree is None and from_tree is None
    if is_flattened and hasattr(cls, "__tensor_flatten__"):
        to_tree, from_tree = _flattened, partial(_unflattened, cls)
    if to_tree is None or from_tree is None:
        raise TypeError(
            f"register_type: {cls.__qualname__} needs to_tree and from_tree; only a tensor "
            "subclass with __tensor_flatten__ can do without both"
        )
    known = REGISTERED_NAMES.get(name)
    if known is not None and known.cls is not cls and not _same_class(known.cls, cls):
        raise ValueError(f"register_type: {name!r} already stands for {known.cls.__qualname__}")
    entry = RegisteredType(cls, name, to_tree, _guarded(from_tree, name), is_flattened)
    REGISTERED[cls] = entry
    REGISTERED_NAMES[name] = entry


_CONTEXT = "__context__"  # beside the names of a subclass's tensors


def _flattened(tensor: Any) -> object:
    names, context = tensor.__tensor_flatten__()
    tensors = {name: getattr(tensor, name) for name in names}
    return {**tensors, _CONTEXT: (context, tensor.shape, tuple(tensor.stride()))}


def _unflattened(cls: Any, tree: dict[str, Any]) -> object:
    tensors = {name: tensor for name, tensor in tree.items() if name != _CONTEXT}
    return cls.__tensor_unflatten__(tensors, *tree[_CONTEXT])


def _guarded(from_tree: Callable[[Any], object], name: str) -> Callable[[Any], object]:
    """Reports a failing callback as an error of its own: a restore passes over damaged data."""

    def make(value: Any) -> object:
        try:
            return from_tree(value)
        except Exception as cause:
            raise CheckpointError(
                f"from_tree of the type {name!r} failed: {cause!r}", code="unsupported"
            ) from cause

    return make


def _same_class(one: type, other: type) -> bool:
    # If a module is imported again, as in a notebook, it defines its classes anew.
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


register_type(
    deque, "collections.deque", lambda d: (list(d), d.maxlen), lambda v: deque(v[0], v[1])
)
register_type(bytearray, "bytearray", bytes, bytearray)
register_type(
    BytesIO, "io.BytesIO", lambda b: (b.getvalue(), b.tell()), lambda v: _bytes_io(v[0], v[1])
)


def _bytes_io(data: bytes, position: int) -> BytesIO:
    made = BytesIO(data)
    made.seek(position)
    return made
