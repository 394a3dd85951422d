"""safetensors files, and directories of them as Hugging Face's libraries write them.

No framework is needed: the bytes of each tensor stay in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deepfreeze.base.names import KeyTable
from deepfreeze.errors import EncodeError
from deepfreeze.importing.content import Content, Reading
from deepfreeze.importing.safetensors_header import FileTensor, parse_json, read_header
from deepfreeze.importing.source_files import SourceFile, fault
from deepfreeze.state.dtypes import NATIVE, Shape, stored_form
from deepfreeze.state.encoder import Encoder, dumps
from deepfreeze.state.entry import Entry
from deepfreeze.state.tree import Node

INDEX_SUFFIX = ".safetensors.index.json"
SUFFIX = ".safetensors"
_NAMES_SHOWN_MAX = 5

_AS_THEY_ARE = frozenset(NATIVE.values())
_LOGICAL = {
    "C64": ("complex64", 8),
    "F8_E8M0": ("float8_e8m0fnu", 1),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 1),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 1),
}


def read(source: Path, reading: Reading) -> Content:
    """The tensors by their names, in one dict."""
    tensors, files, warnings = (
        _in_directory(source) if source.is_dir() else _in_file(SourceFile(source))
    )
    leaves = _FileLeaves()
    state = {}
    for name, tensor in tensors.items():
        state[name] = value = _value(tensor)
        if isinstance(value, dict):
            warnings.append(
                f"{name}: no framework has {tensor.dtype}; its bytes are stored, with their dtype "
                "and shape, as a dict"
            )
    tree = dumps(Encoder(leaves).encode(state, ""))
    return Content(tree, leaves.entries, [files], files, warnings)


_Found = tuple[dict[str, FileTensor], list[SourceFile], list[str]]


def _in_file(file: SourceFile) -> _Found:
    return read_header(file), [file], []


def _in_directory(folder: Path) -> _Found:
    indices = sorted(folder.glob(f"*{INDEX_SUFFIX}"))
    if len(indices) == 1:
        return _by_index(indices[0])
    files = sorted(folder.glob(f"*{SUFFIX}"))
    if not indices and len(files) == 1:
        return _in_file(SourceFile(files[0]))
    found = ", ".join(path.name for path in (indices or files)[:_NAMES_SHOWN_MAX])
    raise fault(
        folder,
        "",
        f"it has {len(indices)} files *{INDEX_SUFFIX} and {len(files)} files *{SUFFIX} ({found}), "
        "but one index is needed, or one file",
        "unsupported",
    )


def _by_index(path: Path) -> _Found:
    index = SourceFile(path)
    places = _weight_map(index)
    files = {name: SourceFile(path.parent / name) for name in dict.fromkeys(places.values())}
    headers = {name: read_header(file) for name, file in files.items()}
    tensors = {}
    for name, place in places.items():
        if name not in headers[place]:
            raise fault(path, f"({name})", f"{place} has no such tensor", "incomplete")
        tensors[name] = headers[place][name]
    return tensors, [index, *files.values()], _left_out(path, places, headers)


def _weight_map(index: SourceFile) -> dict[str, str]:
    try:
        document = parse_json(bytes(index.memory))
        places = document.get("weight_map")
        if not isinstance(places, dict):
            raise ValueError("it has no weight_map")
        for name, place in places.items():
            name.encode()
            if not isinstance(place, str) or not _is_sibling(place):
                raise ValueError(f"{name!r} is in {place!r}, which is no file of that directory")
    except (ValueError, RecursionError, AttributeError) as cause:
        raise fault(index.path, "", cause) from cause
    return places


def _is_sibling(name: str) -> bool:
    return name.endswith(SUFFIX) and name == Path(name).name and "\0" not in name


def _left_out(
    path: Path, places: Mapping[str, str], headers: Mapping[str, Mapping[str, FileTensor]]
) -> list[str]:
    names = [
        name for place, header in headers.items() for name in header if places.get(name) != place
    ]
    if not names:
        return []
    shown = ", ".join(names[:_NAMES_SHOWN_MAX])
    return [f"{path.name} does not name {len(names)} tensors of its files, left out: {shown}"]


def _value(tensor: FileTensor) -> Any:
    """The tensor itself, or a dict with its bytes if no framework has its dtype."""
    if tensor.dtype in _AS_THEY_ARE or tensor.dtype in _LOGICAL or _is_pairs_of_f4(tensor):
        return tensor
    raw = FileTensor(tensor.file, "U8", (tensor.bytes,), tensor.begin, tensor.bytes)
    return {"dtype": tensor.dtype, "shape": list(tensor.shape), "data": raw}


def _is_pairs_of_f4(tensor: FileTensor) -> bool:
    """Whether torch has the type: it packs F4 in pairs along the last dimension."""
    return tensor.dtype == "F4" and bool(tensor.shape) and tensor.shape[-1] % 2 == 0


def _form(tensor: FileTensor) -> tuple[str, Shape, str]:
    if tensor.dtype in _AS_THEY_ARE:
        return tensor.dtype, tensor.shape, ""
    if tensor.dtype == "F4":
        shape = (*tensor.shape[:-1], tensor.shape[-1] // 2)
        return stored_form("float4_e2m1fn_x2", shape, 1)
    name, item_bytes = _LOGICAL[tensor.dtype]
    return stored_form(name, tensor.shape, item_bytes)


class _FileLeaves:
    """Tells the encoder about tensors that lie in files."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._keys = KeyTable()

    def encode_leaf(self, value: object, path: str) -> Node:
        if not isinstance(value, FileTensor):
            raise EncodeError(f"{path}: a {type(value).__qualname__} in a safetensors file")
        key = self._keys.take(path)
        address = value.file.array(value.begin, value.bytes).ctypes.data if value.bytes else 0
        self.entries.append(Entry(key, *_form(value), address, value.bytes))
        return {"$": "tensor", "k": key}

    def store_bytes(self, data: bytes, path: str) -> str:
        raise EncodeError(f"{path}: bytes in a safetensors file")

    def recall(self, mapping: dict[Any, Any], path: str) -> Node | None:
        return None

    def note(self, mapping: dict[Any, Any], path: str, node: Node) -> None:
        pass

    @property
    def direct(self) -> Mapping[type, Callable[[Any, str], Node]]:
        return {FileTensor: self.encode_leaf}
