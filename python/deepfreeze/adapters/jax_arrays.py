"""JAX arrays: what is stored of them, and new ones in their place.

Nothing writes to an array but a call that it is donated to, and that takes other memory while a
NumPy view of the array is alive. So a view is all that a capture needs. It has to be taken by the
thread that trains: in any other the array may be gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import jax  # type: ignore[import-not-found, unused-ignore]
import numpy as np

from deepfreeze.adapters.base import Entry, Remake
from deepfreeze.adapters.numpy import NumpyAdapter, numpy_dtype
from deepfreeze.dtypes import stored_form
from deepfreeze.errors import CheckpointError, EncodeError
from deepfreeze.names import shown
from deepfreeze.restore_plan import Once
from deepfreeze.tree import Node, tag_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deepfreeze.capture import Capture
    from deepfreeze.plan import Plan

_Part = tuple[Any, "NDArray[Any]"]  # slices of the whole, and what it holds there


class StoredArrays:
    """The arrays of one save. What several places hold is stored once."""

    def __init__(self) -> None:
        # The views too: while they live, no other array comes to lie at their addresses.
        self._known: dict[tuple[object, ...], tuple[str, list[_Part]]] = {}

    def encode(self, array: Any, path: str, capture: Capture) -> Node:
        """The node of a jax.Array that is no key; EncodeError where it has no values here."""
        check_readable(array, path)
        _check_dtype(array.dtype, path)
        node: Node = {"$": "array", "k": self._key_of(array, path, capture)}
        if array.weak_type and not array.shape:
            node["weak"] = True
        return node

    def _key_of(self, array: Any, path: str, capture: Capture) -> str:
        parts = _parts_of(array)
        same = (*(view.ctypes.data for _, view in parts), array.shape, array.dtype)
        if same in self._known and array.size:
            return self._known[same][0]
        whole = np.ascontiguousarray(parts[0][1] if len(parts) == 1 else _joined(array, parts))
        dtype, shape, logical = stored_form(
            array.dtype.name, tuple(array.shape), array.dtype.itemsize
        )
        key = capture.keys.take(path)
        self._known[same] = key, parts
        entry = Entry(key, dtype, shape, logical, whole.ctypes.data, whole.nbytes, is_held=True)
        capture.add(entry, [whole])
        return key

    def clear(self) -> None:
        """Lets the views go."""
        self._known.clear()


def check_readable(array: Any, path: str) -> None:
    """EncodeError where this process can't read all of the array."""
    if isinstance(array, jax.core.Tracer):
        raise EncodeError(
            f"{shown(path)}: a tracer has no values: call save() outside of the traced function"
        )
    if array.is_deleted():
        raise EncodeError(
            f"{shown(path)}: the array was deleted, or donated to a call: "
            "save what that call has returned"
        )
    if not array.is_fully_addressable:
        raise EncodeError(f"{shown(path)}: an array of several processes can't be stored")


@cache
def _is_readable_again(dtype: np.dtype[Any]) -> bool:
    try:
        return bool(numpy_dtype(dtype.name) == dtype)
    except CheckpointError:
        return False


def _check_dtype(dtype: Any, path: str) -> None:
    if not isinstance(dtype, np.dtype) or not _is_readable_again(dtype):
        raise EncodeError(f"{shown(path)}: an array of {dtype} can't be stored")


def _parts_of(array: Any) -> list[_Part]:
    """Views of the shards, of which each part of the array is in one."""
    if array.is_fully_replicated:
        return [((), np.asarray(array))]
    own = [shard for shard in array.addressable_shards if shard.replica_id == 0]
    return [(shard.index, np.asarray(shard.data)) for shard in own]


def _joined(array: Any, parts: list[_Part]) -> NDArray[Any]:
    # A file has one box of a tensor, so that shards are put together first.
    whole = np.empty(array.shape, array.dtype)
    for index, view in parts:
        whole[index] = view
    return whole


@dataclass(frozen=True)
class Home:
    """Where an array lies, and what else a jitted call compiles anew for."""

    sharding: Any
    committed: bool

    @staticmethod
    def of(array: Any) -> Home:
        """That of a live array, which may have been deleted."""
        return Home(array.sharding, array.committed)

    def new(self, data: NDArray[Any], *, weak: bool) -> Any:
        """An array there with memory of its own: what was read is given to others as well."""
        made = _weak(data) if weak else None
        if not self.committed:
            made = jax.numpy.array(data, copy=True) if made is None else made
        elif made is not None:
            made = jax.device_put(made, self.sharding)
        else:
            made = jax.make_array_from_callback(
                data.shape, self.sharding, lambda index: np.array(data[index])
            )
        return made.block_until_ready()


ANYWHERE = Home(None, committed=False)


def _weak(data: NDArray[Any]) -> Any:
    """A scalar that takes other operands' dtype; None where there is none of this dtype."""
    made = jax.numpy.asarray(data.item())
    return made if made.dtype == data.dtype else None


def match_array(node: Node, live: Any, path: str, plan: Plan) -> Remake:
    """Plans a new array of the stored values where the live one lies."""
    if tag_of(node) not in ("array", "tensor"):
        plan.mismatch(path, node, f"an array of {live.dtype}")
        return None
    view = node.get("view")
    form = (view["dtype"], tuple(view["shape"])) if view else plan.form_of(node["k"])
    if not plan.same_form(path, form, (live.dtype.name, tuple(live.shape))):
        return None
    if jax.dtypes.canonicalize_dtype(live.dtype) != live.dtype:
        plan.fault(f"{path}: JAX makes no {live.dtype} without jax_enable_x64")
        return None
    return remade(node, Home.of(live), path, plan)


def remade(node: Node, home: Home, path: str, plan: Plan) -> Once:
    """Has a stored array read; the function puts it on its devices."""
    plan.fresh(node, path)
    tag, weak = str(tag_of(node)), node.get("weak") is True
    return Once(lambda: home.new(_read(tag, node, path, plan), weak=weak))


def _read(tag: str, node: Node, path: str, plan: Plan) -> NDArray[Any]:
    # Not what plan.fresh() makes: where torch is in use, a torch tensor may stand there.
    data: NDArray[Any] = NumpyAdapter().decode(tag, node, path, plan)  # type: ignore[assignment]
    return data
