"""Headers of safetensors files, checked as strictly as the format's own library does.

One check is stricter: a name that stands twice is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import Any, TypeGuard

from deepfreeze.importing.source_files import SourceFile, fault
from deepfreeze.state.dtypes import Shape

HEADER_BYTES_MAX = 100_000_000
LENGTH_BYTES = 8
_SIZE_MAX = (1 << 63) - 1

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip


@dataclass(frozen=True)
class FileTensor:
    """A tensor in a file; `begin` counts from the file's beginning."""

    file: SourceFile
    dtype: str
    shape: Shape
    begin: int
    bytes: int


class _HeaderError(ValueError):
    """The header is not valid; its text says why."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _HeaderError(f"{key!r} stands twice")
        found[key] = value
    return found


def parse_json(data: bytes) -> Any:
    """The value of a JSON text; ValueError or RecursionError if it isn't JSON."""
    return json.loads(data.decode(), object_pairs_hook=_unique)


def header_bytes(file: SourceFile) -> int:
    """The size of the header as the file gives it; 0 if it is no safetensors file."""
    start = bytes(file.memory[: LENGTH_BYTES + 1])
    size = int.from_bytes(start[:LENGTH_BYTES], "little")
    is_header = start[LENGTH_BYTES:] == b"{" and 0 < size <= HEADER_BYTES_MAX
    return size if is_header and LENGTH_BYTES + size <= file.bytes else 0


def read_header(file: SourceFile) -> dict[str, FileTensor]:
    """The tensors of a file, in its order."""
    size = header_bytes(file)
    if not size:
        raise fault(file.path, "at 0", "it does not begin as a safetensors file does, or is cut")
    try:
        document = parse_json(bytes(file.memory[LENGTH_BYTES : LENGTH_BYTES + size]))
        _check_metadata(document.pop("__metadata__", None), file)
        tensors = {
            _name(name): _tensor(file, LENGTH_BYTES + size, name, entry)
            for name, entry in document.items()
        }
        _check_order(file, LENGTH_BYTES + size, tensors)
    except (ValueError, RecursionError) as cause:
        raise fault(file.path, f"at {LENGTH_BYTES}", f"the header: {cause}") from cause
    return tensors


def _name(name: str) -> str:
    name.encode()  # a lone surrogate is no text
    return name


def _check_metadata(metadata: Any, file: SourceFile) -> None:
    texts = {} if metadata is None else metadata
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise _HeaderError("__metadata__ is not of strings")
    if "deepfreeze.version" in texts:
        raise fault(
            file.path,
            "",
            "it is a file of a DeepFreeze run, and other types hide behind those that it shows; "
            "`deepfreeze export` first, or restore the run",
            "unsupported",
        )
    if "DCP_SHARDING_INFO" in texts:  # consolidated files do not have this entry
        raise fault(
            file.path,
            "",
            "it holds boxes of tensors; torch.distributed.checkpoint's "
            "consolidate_safetensors_files() makes whole ones of them",
            "unsupported",
        )


def _tensor(file: SourceFile, data_begin: int, name: str, entry: Any) -> FileTensor:
    if not isinstance(entry, dict):
        raise _HeaderError(f"{name!r} is no object")
    dtype, shape, place = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _HeaderError(f"{name!r} has the dtype {dtype!r}, which the format does not know")
    if not _are_sizes(shape) or not _are_sizes(place) or len(place) != 2:
        raise _HeaderError(f"{name!r}: its shape or data_offsets are no lists of sizes")
    begin, end = place
    if (
        prod(size or 1 for size in shape) > _SIZE_MAX // BITS[dtype]
    ):  # its strides would be too large, even if it has no elements
        raise _HeaderError(f"{name!r}: its shape {shape} is too large")
    if (end - begin) * 8 != prod(shape) * BITS[dtype]:
        raise _HeaderError(f"{name!r}: {end - begin} bytes are no {dtype}{shape}")
    return FileTensor(file, dtype, tuple(shape), data_begin + begin, end - begin)


def _are_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item <= _SIZE_MAX for item in value
    )


def _check_order(file: SourceFile, place: int, tensors: dict[str, FileTensor]) -> None:
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].bytes)):
        if tensor.begin != place:
            raise _HeaderError(f"{name!r} begins at {tensor.begin}, but {place} is next")
        place += tensor.bytes
    if place != file.bytes:
        raise _HeaderError(f"the data ends at {place}, the file at {file.bytes}")
