"""JAX arrays: their stored form, and new arrays in their place.

Nothing writes to an array but a call that it is donated to, and such a call takes other memory
while a NumPy view of the array is alive. So a view is all that a capture needs. The thread that
trains must take it: in any other thread the array may be gone already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import jax  # type: ignore[import-not-found, unused-ignore]
import numpy as np

from deepfreeze.base.names import shown
from deepfreeze.errors import EncodeError
from deepfreeze.frameworks.held import HeldArrays, array_maker
from deepfreeze.state.contracts import Filler, Remake, Sink
from deepfreeze.state.tree import Node

if TYPE_CHECKING:
    from numpy.typing import NDArray


_Part = tuple[tuple[slice, ...], Any]  # its slices of the whole, and an array on one device


def encode_array(array: Any, path: str, capture: Sink, arrays: HeldArrays) -> Node:
    """The node of a jax.Array that is no key; EncodeError if its values can't be read here."""
    check_readable(array, path)
    if not isinstance(array.dtype, np.dtype):
        raise EncodeError(f"{shown(path)}: an array of {array.dtype} can't be stored")
    parts = _parts_of(array)
    # The places of the shards as well: two arrays may be made of the same ones.
    places = tuple((part.unsafe_buffer_pointer(), str(index)) for index, part in parts)
    same = places, array.shape, array.dtype
    node = arrays.store_once(same, lambda: _joined(array, parts), path, capture)
    if array.weak_type and not array.shape:
        node["weak"] = True
    return node


def check_readable(array: Any, path: str) -> None:
    """EncodeError if this process can't read all of the array."""
    if isinstance(array, jax.core.Tracer):
        raise EncodeError(
            f"{shown(path)}: a tracer has no values: call save() outside of the traced function"
        )
    if array.is_deleted():
        raise EncodeError(
            f"{shown(path)}: the array was deleted, or donated to a call: "
            "save the array that the call has returned"
        )
    if not array.is_fully_addressable:
        raise EncodeError(f"{shown(path)}: an array of several processes can't be stored")


def _parts_of(array: Any) -> list[_Part]:
    """Parts that together have each element of the array once.

    Never the array itself: if its values have to be copied, JAX keeps the copy with it for ever.
    """
    if array.is_fully_replicated:
        return [((), array.addressable_data(0))]
    own = [shard for shard in array.addressable_shards if shard.replica_id == 0]
    return [(shard.index, shard.data.addressable_data(0)) for shard in own]


def _joined(array: Any, parts: list[_Part]) -> NDArray[Any]:
    if len(parts) == 1:
        return np.asarray(parts[0][1])
    # A file has one box of a tensor, so the shards are put together first.
    whole = np.empty(array.shape, array.dtype)
    for index, part in parts:
        whole[index] = part
    return whole


@dataclass(frozen=True)
class Home:
    """The placement of an array, and another property for which a jitted call compiles anew."""

    sharding: Any
    committed: bool

    @staticmethod
    def of(array: Any) -> Home:
        """The home of a live array, which may have been deleted."""
        return Home(array.sharding, array.committed)

    def new(self, data: NDArray[Any], *, weak: bool) -> Any:
        """An array there with its own memory, because other places may get the same `data`."""
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
    """A scalar that takes other operands' dtype; None if JAX has no such scalar of this dtype."""
    made = jax.numpy.asarray(data.item())
    return made if made.dtype == data.dtype else None


def match_array(node: Node, live: Any, path: str, plan: Filler) -> Remake:
    """Plans a new array of the stored values, placed as the live one."""
    form = plan.form_in(node)
    if form is None:
        plan.mismatch(path, node, f"an array of {live.dtype}")
        return None
    if not plan.same_form(path, form, (live.dtype.name, tuple(live.shape))):
        return None
    if jax.dtypes.canonicalize_dtype(live.dtype) != live.dtype:
        plan.unfit(path, f"JAX makes no {live.dtype} without jax_enable_x64")
        return None
    return remade(node, Home.of(live), path, plan)


def remade(node: Node, home: Home, path: str, plan: Filler) -> Callable[[], Any]:
    """Has a stored array read; the function puts it on its devices, once."""
    make, weak = array_maker(node, path, plan), node.get("weak") is True
    made: Callable[[], Any] = cache(lambda: home.new(make(), weak=weak))
    return made


def copied(array: NDArray[Any]) -> jax.Array:
    """A copy of `array`, once it is made: if memory is not aligned, JAX copies only later."""
    return jax.numpy.array(array, copy=True).block_until_ready()
