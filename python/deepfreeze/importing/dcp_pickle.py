"""The pickle that DCP calls .metadata, read without running anything that it names.

Each class that such a file may name has a stand-in here, which only keeps its arguments. Any other
name ends the reading before anything is looked up or called.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from pathlib import Path
from typing import Any

from deepfreeze.errors import CheckpointError
from deepfreeze.importing.source_files import fault
from deepfreeze.importing.unpickler import Unpickler

_CLASSES = {
    "torch.distributed.checkpoint.metadata": (
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex",
        "StorageMeta", "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
    ),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo", "_StoragePrefix"),
    # torch before 2.3 had the properties here.
    "torch.distributed._shard.sharded_tensor.metadata": (
        "MEM_FORMAT_ENCODING", "TensorProperties",
    ),
    "torch.serialization": ("_get_layout",),
    "torch": ("Size",),
    # The type of the directory's own name; Python 3.13 keeps these in a module of their own.
    "pathlib": ("PosixPath", "WindowsPath"),
    "pathlib._local": ("PosixPath", "WindowsPath"),
}  # fmt: skip
_DTYPES = frozenset({
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float4_e2m1fn_x2",
})  # fmt: skip
_SIZE_MAX = (1 << 63) - 1


class Kept:
    """Stands for an instance of a class, or for the result of a call."""

    __slots__ = ("arguments", "state")
    name = ""
    arguments: tuple[Any, ...]
    state: Any

    def __new__(cls, *arguments: Any, **_: Any) -> Kept:
        made = super().__new__(cls)
        made.arguments, made.state = arguments, None
        return made

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def member(self, name: str) -> Any:
        """The attribute that the instance would have under this name; None if it has none."""
        return self.state.get(name) if isinstance(self.state, dict) else None


_STAND_INS: dict[tuple[str, str], type[Kept]] = {
    (module, name): type(name, (Kept,), {"__slots__": (), "name": name})
    for module, names in _CLASSES.items()
    for name in names
}


class _Reader(Unpickler):
    def __init__(self, data: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(data))
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        """Gives a container or one of our stand-ins; any other name ends the reading."""
        if module == "torch" and name in _DTYPES:
            return name
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        found = _STAND_INS.get((module, name))
        if found is None:
            raise fault(
                self._path,
                "",
                f"it names {module}.{name}, which is no part of DCP's metadata; nothing of it "
                "was run",
                "unsupported",
            )
        return found


def read_pickle(data: bytes, path: Path) -> Any:
    """The object pickled in the bytes of the file `path`; CheckpointError if it isn't a pickle."""
    try:
        return _Reader(data, path).load()
    except CheckpointError:
        raise
    except Exception as cause:  # an unpickler raises many kinds for bytes that are no pickle
        raise fault(path, "", f"it is no whole pickle ({cause!r})") from cause


def is_a(value: Any, name: str) -> bool:
    """Whether `value` stands for an instance of the class of that name."""
    return isinstance(value, Kept) and value.name == name


def size_of(value: Any) -> tuple[int, ...] | None:
    """The numbers of a torch.Size or of a plain sequence; None for any other value."""
    if is_a(value, "Size"):
        value = value.arguments[0] if len(value.arguments) == 1 else None
    if not isinstance(value, (tuple, list)):
        return None
    fine = all(type(number) is int and 0 <= number <= _SIZE_MAX for number in value)
    return tuple(value) if fine else None
