"""NumPy arrays and scalars."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from deepfreeze.base.names import shown
from deepfreeze.errors import CheckpointError, CorruptError, EncodeError
from deepfreeze.frameworks.plain_numbers import is_number, made_exactly
from deepfreeze.state.contracts import Adapter, Filler, Remake, Sink, Source
from deepfreeze.state.dtypes import COMPLEX, NATIVE, stored_form
from deepfreeze.state.entry import Buffer, Entry, Layout, Place
from deepfreeze.state.kinds import form_text
from deepfreeze.state.tree import Node

if TYPE_CHECKING:
    from numpy.typing import NDArray


_EXTENDED = frozenset({  # known to ml_dtypes alone
    "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
})  # fmt: skip
_SHAREABLE = frozenset({*NATIVE, *COMPLEX}) - _EXTENDED
_NAMES = _SHAREABLE | {"float128", "complex256"}
# Codes of strings, dates and scalars, as dtype.str gives them. "O" is left out: it has pointers.
_CODE = re.compile(r"[<>|=](?:[biufcSU][0-9]+|[mM]8(?:\[[0-9]*[A-Za-z]+\])?)")
_EMPTY_TEXTS: dict[object, np.generic] = {"<U0": np.str_(), "|S0": np.bytes_()}
_TORCH_ONLY = re.compile(r"complex32|u?int[1-7]|bits\w+|quint\w+|qint\w+|float4_\w+")

# Lets torch's adapter store an array, so that it finds tensors in the same memory.
Share = Callable[[Any, Node, str], bool]


def allocate(size: int) -> Buffer:
    """Memory for an entry of so many bytes."""
    array = np.empty(size, dtype=np.uint8)
    return Buffer(array, array.ctypes.data, size, None)


class NumpyAdapter(Adapter):
    """Arrays become entries and are filled in place; scalars are part of the tree."""

    numerous = (np.ndarray,)

    def __init__(self, share: Share | None = None) -> None:
        self._share = share
        self._known: dict[tuple[object, ...], str] = {}

    def claims(self, value: object) -> bool:
        return type(value) in (np.ndarray, np.memmap) or isinstance(value, np.generic)

    def encode(self, value: Any, path: str, capture: Sink) -> Node:
        _check_dtype(value.dtype, path)
        if isinstance(value, np.generic):
            data = base64.b64encode(np.asarray(value).tobytes()).decode()
            return {"$": "np", "d": _scalar_dtype(value.dtype), "v": data}
        node: Node = {"$": "array", "k": ""}
        if self._share is None or not self._share(value, node, path):
            node["k"] = self._key_of(value, path, capture)
        return node

    def _key_of(self, array: NDArray[Any], path: str, capture: Sink) -> str:
        same = (array.ctypes.data, array.shape, array.strides, array.dtype.str)
        if same in self._known and array.size:
            return self._known[same]
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        dtype, shape, logical = stored_form(
            dtype_name(array.dtype), array.shape, array.dtype.itemsize
        )
        key = self._known[same] = capture.keys.take(path)
        # Keeps the live array, too, so that no other comes to lie at its address meanwhile.
        entry = Entry(key, dtype, shape, logical, little.ctypes.data, little.nbytes)
        capture.add(entry, [little, array])
        return key

    def match(self, node: Node, live: Any, path: str, plan: Filler) -> Remake:
        if not plan.keys.wants(path):
            return None
        if isinstance(live, np.generic):
            return plan.fresh(node, path)
        form = plan.form_in(node)
        if form is None:
            self._match_number(node, live, path, plan)
            return None
        view = node.get("view")
        if not plan.same_form(path, form, (dtype_name(live.dtype), live.shape)):
            return None
        if not live.flags.writeable:
            return plan.fresh(node, path)
        place = Place(
            path=path,
            address=live.ctypes.data,
            bytes=live.nbytes,
            direct=view is None and live.flags.c_contiguous and live.dtype.isnative,
            copy=lambda: np.copyto(live, _array_of(plan, node, path)),
            # Arrays that were stored without torch's help can't tell with which others they share
            # memory.
            live=Layout(live.shape, live.strides, live.itemsize) if self._shared(live) else None,
            stored=Layout.stored(view, live.shape, live.itemsize),
            offset=int(view["offset"]) * live.itemsize if view else 0,
        )
        plan.fill(node["k"], place)
        return None

    def _match_number(self, node: Node, live: NDArray[Any], path: str, plan: Filler) -> None:
        """Plans to write a stored plain number, or a list, into an array that holds it exactly."""
        if not is_number(node) or not live.flags.writeable:
            plan.mismatch(path, node, f"an array {form_text((dtype_name(live.dtype), live.shape))}")
            return
        made = made_exactly(node, lambda value: np.array(value, live.dtype), live.shape, path, plan)
        if made is None:
            return
        layout = Layout(live.shape, live.strides, live.itemsize) if self._shared(live) else None
        address, size = live.ctypes.data, live.nbytes
        plan.write(Place(path, address, size, False, lambda: np.copyto(live, made), layout, layout))

    def _shared(self, live: NDArray[Any]) -> bool:
        return self._share is not None and shareable(live)

    def decodes(self, tag: str, node: Node) -> bool:
        return tag in ("array", "np", "tensor")

    def decode(self, tag: str, node: Node, path: str, plan: Source) -> object:
        if tag == "np":
            if node["d"] in _EMPTY_TEXTS:
                return _EMPTY_TEXTS[node["d"]]
            data = base64.b64decode(node["v"], validate=True)
            return np.frombuffer(data, dtype=numpy_dtype(node["d"]), count=1)[0]
        return _array_of(plan, node, path)

    def environment(self) -> dict[str, str]:
        return {"numpy": np.__version__}


def _check_dtype(dtype: np.dtype[Any], path: str) -> None:
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise EncodeError(f"{shown(path)}: an array of {dtype} can't be stored")
    if dtype.kind == "V" and dtype.name not in NATIVE:
        raise EncodeError(f"{shown(path)}: an array of {dtype} can't be stored")


def shareable(array: NDArray[Any]) -> bool:
    """Whether torch can hold the array's memory as a tensor."""
    return (
        _is_shareable(array.dtype)
        and array.size > 0
        and all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)
    )


@cache
def _is_shareable(dtype: np.dtype[Any]) -> bool:
    return dtype.isnative and dtype.name in _SHAREABLE


@cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name to store, the same for either byte order."""
    return dtype.newbyteorder("<").str if dtype.kind in "SUmM" else dtype.name


def _scalar_dtype(dtype: np.dtype[Any]) -> str:
    return dtype.name if dtype.kind == "V" else dtype.str


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of that name; bfloat16 and the like need ml_dtypes."""
    if type(name) is not str or (name not in _EXTENDED and not _TORCH_ONLY.fullmatch(name)):
        return _own_dtype(name)
    try:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError) as cause:
        raise CheckpointError(
            f"NumPy has no {name}: import torch before load(), or install ml_dtypes",
            code="unsupported",
        ) from cause
    return dtype


def _own_dtype(name: object) -> np.dtype[Any]:
    # A closed list: a dtype that holds objects would make pointers of a file's bytes.
    try:
        if isinstance(name, str) and (name in _NAMES or _CODE.fullmatch(name)):
            dtype: np.dtype[Any] = np.dtype(name)
            if not dtype.hasobject and dtype.itemsize:
                return dtype
    except (TypeError, ValueError):
        pass
    raise CorruptError(f"state tree: {name!r} is no dtype of NumPy {np.__version__}")


def _array_of(plan: Source, node: Node, path: str) -> NDArray[Any]:
    data = plan.buffer_of(node["k"]).array
    if node.get("view") is not None:
        return _strided(data, node["view"], path)
    name, shape = plan.form_of(node["k"])
    dtype = numpy_dtype(name)
    if data.nbytes != prod(shape) * dtype.itemsize:
        raise CorruptError(f"state tree at {shown(path)}: {data.nbytes} bytes are no {dtype}")
    return data.view(dtype).reshape(shape)


def _strided(data: NDArray[np.uint8], view: Node, path: str) -> NDArray[Any]:
    dtype = numpy_dtype(view["dtype"])
    shape = [int(size) for size in view["shape"]]
    strides = [int(stride) * dtype.itemsize for stride in view["stride"]]
    start = int(view["offset"]) * dtype.itemsize
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min([start, *strides, *shape], default=0) < 0 or (
        0 not in shape and start + last + dtype.itemsize > len(data)
    ):
        raise CorruptError(f"state tree at {shown(path)}: a view beyond its entry")
    return np.ndarray(tuple(shape), dtype, data, start, tuple(strides))
