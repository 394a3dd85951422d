"""Memory for entries that can't be read straight into live memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepfreeze.errors import CorruptError
from deepfreeze.state.contracts import imported
from deepfreeze.state.dtypes import Shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Buffer:
    """One entry's bytes. Restored values may be views of it, so it is never used again."""

    array: NDArray[np.uint8]  # one-dimensional
    address: int
    bytes: int
    tensor: Any  # the same memory as a tensor of the entry's dtype and shape, if torch is used


def allocate(name: str, shape: Shape, size: int) -> Buffer:
    """A buffer for an entry; torch's memory if torch is used, so that storages stay movable."""
    if imported("torch"):
        from deepfreeze.frameworks.torch.tensors import empty, raw_bytes

        tensor = empty(name, shape, size)
        raw = raw_bytes(tensor)
        if raw.numel() != size:  # the engine writes `size` bytes in any case
            raise CorruptError(f"{name}{list(shape)} takes {raw.numel()} bytes, {size} are stored")
        return Buffer(raw.numpy(), raw.data_ptr(), size, tensor)
    import numpy as np

    array = np.empty(size, dtype=np.uint8)
    return Buffer(array, array.ctypes.data, size, None)
