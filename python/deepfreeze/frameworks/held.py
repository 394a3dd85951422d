"""Arrays that nobody writes while they are held, and the values of stored arrays."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from deepfreeze.base.names import shown
from deepfreeze.errors import CheckpointError, EncodeError
from deepfreeze.frameworks.numpy import NumpyAdapter, dtype_name, numpy_dtype
from deepfreeze.state.contracts import Filler, Sink
from deepfreeze.state.dtypes import stored_form
from deepfreeze.state.entry import Entry
from deepfreeze.state.tree import Node

if TYPE_CHECKING:
    from numpy.typing import NDArray


log = logging.getLogger("deepfreeze")


class HeldArrays:
    """Makes entries of arrays for one save; arrays with the same memory get one entry.

    A given array must be a copy, or a view that keeps its framework from writing the memory.
    """

    def __init__(self) -> None:
        # Each with an object that holds the memory: no other array may come to lie at its address.
        self._known: dict[Hashable, tuple[str, object]] = {}

    def store(self, array: NDArray[Any], path: str, capture: Sink) -> Node:
        """The node of an array; EncodeError for a dtype that could not be loaded again."""
        address = _address_of(array)
        same = address, array.strides, array.shape, array.dtype
        known = self._known.get(same)
        if known is not None:
            return {"$": "array", "k": known[0]}
        if array.flags.c_contiguous:
            key = _entry_of(array, address, path, capture)
        else:
            copied = np.array(array, order="C")
            key = _entry_of(copied, _address_of(copied), path, capture)
        return self._noted(same, key, array, array.nbytes)

    def store_once(
        self, same: Hashable, make: Callable[[], NDArray[Any]], path: str, capture: Sink
    ) -> Node:
        """As store(), but makes the array only if no array that is the `same` was stored."""
        known = self._known.get(same)
        if known is not None:
            return {"$": "array", "k": known[0]}
        array = np.asarray(make(), order="C")
        key = _entry_of(array, _address_of(array), path, capture)
        return self._noted(same, key, make, array.nbytes)  # `make` holds the sources of the array

    def _noted(self, same: Hashable, key: str, holder: object, count: int) -> Node:
        if count:  # an empty array has no address of its own
            self._known[same] = key, holder
        return {"$": "array", "k": key}


def _entry_of(array: NDArray[Any], address: int, path: str, capture: Sink) -> str:
    """The key of a new entry, for a contiguous array."""
    name = storable_name(array.dtype)
    if name is None:
        raise EncodeError(f"{shown(path)}: an array of {array.dtype} can't be stored")
    key = capture.keys.take(path)
    dtype, shape, logical = stored_form(name, array.shape, array.itemsize)
    capture.add(Entry(key, dtype, shape, logical, address, array.nbytes, is_held=True), [array])
    return key


def _address_of(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


@cache
def storable_name(dtype: np.dtype[Any]) -> str | None:
    """The name to store; None if no array of the dtype could be made again."""
    if dtype.hasobject or dtype.names is not None:  # texts and handles; quantised integers
        return None
    name = dtype_name(dtype)
    try:
        return name if numpy_dtype(name) == dtype else None
    except CheckpointError:
        return None


def array_maker(node: Node, path: str, plan: Filler) -> Callable[[], NDArray[Any]]:
    """Has a stored array or tensor read; the function gives it as an array.

    The array must be copied and not kept: other places of the state may share its memory.
    """
    plan.fresh(node, path)  # its value would be a tensor if torch is imported too

    def make() -> NDArray[Any]:
        value = NumpyAdapter().decode("array", node, path, plan)
        assert isinstance(value, np.ndarray)
        return value

    return make


@cache
def warn_if_untested(name: str, version: str, tested: str) -> None:
    """Warns once per process if a framework's version is not one that the tests run with."""
    if not version.startswith(tested):
        log.warning("%s %s is untested with this adapter, which is tested with %s", name, version,
                    tested + "x")  # fmt: skip
