"""Arrays that nothing writes while somebody holds them, and the values of stored ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from deepfreeze.adapters.base import Entry
from deepfreeze.adapters.numpy import NumpyAdapter, dtype_name, numpy_dtype
from deepfreeze.dtypes import stored_form
from deepfreeze.errors import CheckpointError, EncodeError
from deepfreeze.names import shown
from deepfreeze.tree import Node, tag_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deepfreeze.capture import Capture
    from deepfreeze.plan import Form, Plan

log = logging.getLogger("deepfreeze")


class HeldArrays:
    """Of one save: makes entries of arrays, one where several have the same memory.

    An array that is given must be a view that keeps its framework from writing the memory, or a
    copy of its own.
    """

    def __init__(self) -> None:
        # What makes an array has it, too: no other one comes to lie at its address meanwhile.
        self._known: dict[Hashable, tuple[str, Callable[[], NDArray[Any]]]] = {}

    def store(self, array: NDArray[Any], path: str, capture: Capture) -> Node:
        """The node of an array; EncodeError for a dtype that could not be loaded again."""
        address = array.__array_interface__["data"][0]
        same = address, array.strides, array.shape, array.dtype
        return self.store_once(same, lambda: array, path, capture)

    def store_once(
        self, same: Hashable, make: Callable[[], NDArray[Any]], path: str, capture: Capture
    ) -> Node:
        """As store(), of an array that is made where none was stored that is the `same`."""
        if same not in self._known:
            array = make()
            key = _entry_of(array, path, capture)
            if not array.nbytes:  # it has no place of its own
                return {"$": "array", "k": key}
            self._known[same] = key, make
        return {"$": "array", "k": self._known[same][0]}


def _entry_of(array: NDArray[Any], path: str, capture: Capture) -> str:
    """The key of a new entry."""
    name = storable_name(array.dtype)
    if name is None:
        raise EncodeError(f"{shown(path)}: an array of {array.dtype} can't be stored")
    array = np.asarray(array, order="C")
    key = capture.keys.take(path)
    dtype, shape, logical = stored_form(name, array.shape, array.itemsize)
    address = array.__array_interface__["data"][0]
    entry = Entry(key, dtype, shape, logical, address, array.nbytes, is_held=True)
    capture.add(entry, [array])
    return key


@cache
def storable_name(dtype: np.dtype[Any]) -> str | None:
    """The name to store; None where no array of the dtype could be made again."""
    if dtype.hasobject or dtype.names is not None:  # texts and handles; quantised integers
        return None
    name = dtype_name(dtype)
    try:
        return name if numpy_dtype(name) == dtype else None
    except CheckpointError:
        return None


def form_in(node: Node, plan: Plan) -> Form | None:
    """The dtype and shape of a stored array or tensor; None of anything else."""
    if tag_of(node) not in ("array", "tensor"):
        return None
    view = node.get("view")
    if view is None:
        return plan.form_of(node["k"])
    return str(view["dtype"]), tuple(int(size) for size in view["shape"])


def array_maker(node: Node, path: str, plan: Plan) -> Callable[[], NDArray[Any]]:
    """Has a stored array or tensor read; the function gives it as an array.

    To be copied from, never to be kept: other places of the state may share its memory.
    """
    plan.fresh(node, path)  # what that makes would be a tensor where torch is imported too

    def make() -> NDArray[Any]:
        value = NumpyAdapter().decode("array", node, path, plan)
        assert isinstance(value, np.ndarray)
        return value

    return make


@cache
def warn_if_untested(name: str, version: str, tested: str) -> None:
    """One warning in a process where a framework's version is not one that the tests run with."""
    if not version.startswith(tested):
        log.warning("%s %s is untested with this adapter, which is tested with %s", name, version,
                    tested + "x")  # fmt: skip
