"""NumPy arrays and scalars."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from deepfreeze.adapters.base import Entry, Place, Remake
from deepfreeze.dtypes import NATIVE, stored_form
from deepfreeze.errors import CheckpointError, CorruptError, EncodeError
from deepfreeze.names import shown
from deepfreeze.tree import Node, tag_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deepfreeze.capture import Capture
    from deepfreeze.plan import Plan


class NumpyAdapter:
    """Arrays become entries and are filled in place; scalars stand in the tree."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], str] = {}

    def claims(self, value: object) -> bool:
        return type(value) in (np.ndarray, np.memmap) or isinstance(value, np.generic)

    def encode(self, value: Any, path: str, capture: Capture) -> Node:
        _check_dtype(value.dtype, path)
        if isinstance(value, np.generic):
            data = base64.b64encode(np.asarray(value).tobytes()).decode()
            return {"$": "np", "d": value.dtype.str, "v": data}
        return {"$": "array", "k": self._key_of(value, path, capture)}

    def _key_of(self, array: NDArray[Any], path: str, capture: Capture) -> str:
        same = (array.ctypes.data, array.shape, array.strides, array.dtype.str)
        if same in self._known and array.size:
            return self._known[same]
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        dtype, shape, logical = stored_form(little.dtype.name, array.shape, array.dtype.itemsize)
        key = self._known[same] = capture.keys.take(path)
        # The live array too, so that no other comes to lie at its address meanwhile.
        owner = (little, array)
        capture.entries.append(
            Entry(key, dtype, shape, logical, little.ctypes.data, little.nbytes, owner)
        )
        return key

    def finish(self, capture: Capture) -> None:
        self._known.clear()

    def match(self, node: Node, live: Any, path: str, plan: Plan) -> Remake:
        if not plan.keys.wants(path):
            return None
        if isinstance(live, np.generic):
            return plan.fresh(node, path)
        if tag_of(node) != "array":
            plan.mismatch(path, node, f"an array of {live.dtype}")
            return None
        if not plan.same_form(path, plan.form_of(node["k"]), (live.dtype.name, live.shape)):
            return None
        if not live.flags.writeable:
            return plan.fresh(node, path)
        place = Place(
            path=path,
            address=live.ctypes.data,
            bytes=live.nbytes,
            direct=live.flags.c_contiguous and live.dtype.isnative,
            copy=lambda: np.copyto(live, _view_of(plan, node["k"])),
        )
        plan.fill(node["k"], place)
        return None

    def decodes(self, tag: str, node: Node) -> bool:
        return tag in ("array", "np", "tensor")

    def decode(self, tag: str, node: Node, path: str, plan: Plan) -> object:
        if tag == "np":
            data = base64.b64decode(node["v"], validate=True)
            return np.frombuffer(data, dtype=np.dtype(node["d"]), count=1)[0]
        array = _view_of(plan, node["k"])
        view = node.get("view")
        if view is None:
            return array
        return _strided(plan.buffer_of(node["k"]).array, view, path)

    def environment(self) -> dict[str, str]:
        return {"numpy": np.__version__}


def _check_dtype(dtype: np.dtype[Any], path: str) -> None:
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise EncodeError(f"{shown(path)}: an array of {dtype} can't be stored")
    if dtype.kind == "V" and dtype.name not in NATIVE:
        raise EncodeError(f"{shown(path)}: an array of {dtype} can't be stored")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of that name; bfloat16 and the like need ml_dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError) as cause:
        raise CheckpointError(
            f"NumPy has no {name}: import torch before load(), or install ml_dtypes",
            code="unsupported",
        ) from cause
    return dtype


def _view_of(plan: Plan, key: str) -> NDArray[Any]:
    name, shape = plan.form_of(key)
    return plan.buffer_of(key).array.view(numpy_dtype(name)).reshape(shape)


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
