"""Files of torch.save, for `deepfreeze import`: read without running the code that they name.

Everything goes through the unpickler of torch.load(weights_only=True).
"""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch
from torch import _weights_only_unpickler

from deepfreeze.frameworks.torch.tensors import copyable, dtype_from_name, dtype_name
from deepfreeze.state.dtypes import Shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Tensor = torch.Tensor

_TERMINAL_COLOURS = re.compile(r"\033\[[0-9;]*m")
_REASON_CHARACTERS_MAX = 300


class RefusedError(Exception):
    """A file that weights_only does not load; the message says why."""


def load(source: Path | IO[bytes], *, mapped: bool = False) -> Any:
    """The value in a file, tensors on the host; `mapped` ones stay in the file, a path."""
    return _loaded(lambda: torch.load(source, map_location="cpu", weights_only=True, mmap=mapped))


def _loaded(load_it: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own older formats
        try:
            return load_it()
        except Exception as cause:  # torch raises many kinds for bytes that it does not know
            raise RefusedError(_reason(cause)) from cause


def _reason(cause: Exception) -> str:
    """The sentence in a message of torch that tells about the file, not about torch.load."""
    text = _TERMINAL_COLOURS.sub("", str(cause))
    if isinstance(cause, pickle.UnpicklingError):
        text = text.partition("WeightsUnpickler error:")[2] or text.partition("\n\n")[2] or text
    line = next((line.strip() for line in text.splitlines() if line.strip()), repr(cause))
    return line[:_REASON_CHARACTERS_MAX]


def allowed(name: str) -> bool:
    """Whether weights_only allows a class or function of this name."""
    return name in _weights_only_unpickler._get_allowed_globals()


def storage_item_bytes(kind: str) -> int:
    """The bytes of an element in a class of storages, as in "FloatStorage"."""
    if kind == "UntypedStorage":
        return 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that these classes are deprecated
        dtype: torch.dtype = getattr(torch, kind).dtype
    return dtype.itemsize


@dataclass(frozen=True)
class Described:
    """A tensor that torch.save wrote alone: its dtype and shape, and its layout in its storage."""

    dtype: str
    shape: Shape
    stride: tuple[int, ...]
    offset: int  # elements
    storage_bytes: int
    conjugated: bool  # lazily: the storage has the values before conjugation
    negated: bool


def describe(stream: IO[bytes]) -> Described:
    """Reads all but the elements; RefusedError if the file holds no plain tensor."""
    found = _loaded(lambda: torch.load(stream, map_location="meta", weights_only=True))
    if type(found) is not torch.Tensor or found.layout != torch.strided or found.is_quantized:
        raise RefusedError(f"it holds a {type(found).__qualname__}, not a plain tensor")
    return Described(
        dtype_name(found.dtype),
        tuple(found.shape),
        tuple(found.stride()),
        int(found.storage_offset()),
        found.untyped_storage().nbytes(),
        found.is_conj(),
        found.is_neg(),
    )


def view_of(array: NDArray[np.uint8], what: Described) -> torch.Tensor:
    """The tensor in the memory of its storage; it keeps the memory alive."""
    dtype = dtype_from_name(what.dtype)
    raw = _bytes_of(array)
    elements = raw[: raw.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    found = elements.as_strided(what.shape, what.stride, what.offset)
    found = found.conj() if what.conjugated else found
    return torch._neg_view(found) if what.negated else found


def _bytes_of(array: NDArray[np.uint8]) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that read-only memory must not be written
        return torch.from_numpy(array)


def tensor_bytes(dtype: str, shape: Shape) -> int:
    """The bytes of a tensor; CorruptError if torch has no such dtype."""
    return prod(shape) * dtype_from_name(dtype).itemsize


def empty_in(memory: memoryview, dtype: str, shape: Shape) -> torch.Tensor:
    """A tensor in writable memory of its size; it keeps the memory alive."""
    kind = dtype_from_name(dtype)
    if not memory.nbytes:  # torch makes no tensor of an empty buffer
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(memory, dtype=torch.uint8).view(kind).view(shape)


def copy_box(whole: torch.Tensor, slices: tuple[slice, ...], box: torch.Tensor) -> None:
    """Puts a box into its place, bit by bit."""
    copyable(whole)[slices].copy_(copyable(box.resolve_conj().resolve_neg()))
