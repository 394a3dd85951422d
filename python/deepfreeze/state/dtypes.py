"""Which stored dtype holds which other: NumPy and torch share names, safetensors has its own."""

from __future__ import annotations

from math import prod

from deepfreeze.errors import CorruptError

NATIVE = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16",
    "uint32": "U32", "int32": "I32", "uint64": "U64", "int64": "I64",
    "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
COMPLEX = {"complex64": "F32", "complex128": "F64"}
BY_STORED = {stored: name for name, stored in NATIVE.items()}
_BYTES = {"BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "BF16": 2}

Shape = tuple[int, ...]


def stored_form(name: str, shape: Shape, item_bytes: int) -> tuple[str, Shape, str]:
    """Stored dtype, stored shape and logical dtype of an array of the dtype `name`."""
    if name in NATIVE:
        return NATIVE[name], shape, ""
    if name in COMPLEX:
        return COMPLEX[name], (*shape, 2), name
    return "U8", (*shape, item_bytes), name


def logical_form(stored: str, shape: Shape, logical: str) -> tuple[str, Shape]:
    """The dtype name and shape for which stored_form() gives these, else CorruptError."""
    name, outer = (logical, shape[:-1]) if logical else (BY_STORED.get(stored, ""), shape)
    item_bytes = shape[-1] if logical and shape else 0
    if not name or stored_form(name, outer, item_bytes) != (stored, shape, logical):
        raise CorruptError(f"a stored {stored}{list(shape)} can't hold {logical or 'a dtype'}")
    return name, outer


def stored_bytes(stored: str, shape: Shape) -> int:
    """The size of an entry in bytes."""
    return prod(shape) * (_BYTES.get(stored) or int(stored[1:]) // 8)
