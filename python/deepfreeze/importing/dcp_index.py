"""The tensors and objects that a DCP directory's .metadata names, and their places in its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepfreeze.importing.boxes import Box, tiling_fault
from deepfreeze.importing.dcp_pickle import is_a, read_pickle, size_of
from deepfreeze.importing.source_files import SourceFile, fault, first_few
from deepfreeze.importing.unflatten import Keys
from deepfreeze.state.dtypes import Shape

NAME = ".metadata"


@dataclass(frozen=True)
class Item:
    """The place of a written item: file, offset and length."""

    file: str
    offset: int
    bytes: int


@dataclass(frozen=True)
class Chunk:
    """A box of a tensor, and its place."""

    box: Box
    item: Item


@dataclass(frozen=True)
class StoredTensor:
    """A tensor, and the boxes that tile it."""

    dtype: str
    shape: Shape
    chunks: list[Chunk]


@dataclass
class Index:
    """The leaves of a checkpoint by flat name, in order, with their paths."""

    leaves: dict[str, StoredTensor | Item] = field(default_factory=dict)
    paths: dict[str, Keys] = field(default_factory=dict)  # their paths in the state's tree
    warnings: list[str] = field(default_factory=list)


class _Parser:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._items: dict[tuple[str, Shape | None], Item] = {}

    def bad(self, place: str, cause: str, code: str = "corrupt") -> Exception:
        return fault(self._path, f"({place})" if place else "", cause, code)

    def parse(self, root: Any) -> Index:
        if not is_a(root, "Metadata"):
            raise self.bad("", "it holds no Metadata")
        entries, storage = root.member("state_dict_metadata"), root.member("storage_data")
        if not isinstance(entries, dict) or not isinstance(storage, dict):
            raise self.bad("", "it lacks state_dict_metadata or storage_data")
        for key, info in storage.items():
            self._note_item(key, info)
        index = Index(paths=self._paths(root.member("planner_data")))
        for name, entry in entries.items():
            if not isinstance(name, str):
                raise self.bad("", f"a name is a {type(name).__name__}")
            index.leaves[name] = self._leaf(name, entry)
        index.warnings += self._left_out(index)
        for name in index.leaves:
            index.paths.setdefault(name, (name,))
        return index

    def _left_out(self, index: Index) -> list[str]:
        """Warns of names that only some of the tables have: DCP stores one rank's objects alone."""
        unstored = [name for name in index.paths if name not in index.leaves]
        unknown = [
            name
            for name in dict.fromkeys(name for name, _ in self._items)
            if name not in index.leaves
        ]
        warnings = []
        if unstored:
            warnings.append(f"{self._path}: nothing was stored for {first_few(unstored)}")
        if unknown:
            warnings.append(f"{self._path} does not describe {first_few(unknown)}: left out")
        return warnings

    def _note_item(self, key: Any, info: Any) -> None:
        name = key.member("fqn") if is_a(key, "MetadataIndex") else None
        if not isinstance(name, str):
            raise self.bad("", "storage_data has a key that is no MetadataIndex")
        offset = key.member("offset")
        place = None if offset is None else size_of(offset)
        if offset is not None and place is None:
            raise self.bad(name, "the offset of a box is no list of numbers")
        if (name, place) in self._items:
            raise self.bad(name, f"{_what(place)} stands twice in storage_data")
        self._items[name, place] = self._item(name, info)

    def _item(self, name: str, info: Any) -> Item:
        if not is_a(info, "_StorageInfo"):
            raise self.bad(name, "its place is no _StorageInfo")
        file, offset, size = (info.member(key) for key in ("relative_path", "offset", "length"))
        if not isinstance(file, str) or type(offset) is not int or type(size) is not int:
            raise self.bad(name, "its file, offset or length is missing")
        if offset < 0 or size < 0:
            raise self.bad(name, "its offset or length is negative")
        if file != Path(file).name or file in ("", "..") or "\0" in file:
            raise self.bad(name, f"it names {file!r}, which is no file of that directory")
        transforms = info.member("transform_descriptors")
        if transforms:
            known = isinstance(transforms, list) and all(type(one) is str for one in transforms)
            kinds = first_few(transforms) if known else "something"  # else it may be of any size
            raise self.bad(name, f"it is stored through {kinds}", "unsupported")
        return Item(file, offset, size)

    def _leaf(self, name: str, entry: Any) -> StoredTensor | Item:
        if is_a(entry, "BytesStorageMetadata"):
            return self._found(name, None)
        if not is_a(entry, "TensorStorageMetadata"):
            raise self.bad(name, "it is neither a tensor nor an object")
        dtype, shape = _dtype_of(entry.member("properties")), size_of(entry.member("size"))
        chunks = entry.member("chunks")
        if dtype is None or shape is None or not isinstance(chunks, list):
            raise self.bad(name, "its dtype, size or chunks are missing")
        tensor = StoredTensor(dtype, shape, [self._chunk(name, chunk) for chunk in chunks])
        wrong = tiling_fault(shape, [chunk.box for chunk in tensor.chunks])
        if wrong:
            raise self.bad(name, wrong)
        return tensor

    def _chunk(self, name: str, chunk: Any) -> Chunk:
        known = is_a(chunk, "ChunkStorageMetadata")
        offset = size_of(chunk.member("offsets")) if known else None
        shape = size_of(chunk.member("sizes")) if known else None
        if offset is None or shape is None:
            raise self.bad(name, "a chunk lacks its offsets or sizes")
        return Chunk(Box(offset, shape), self._found(name, offset))

    def _found(self, name: str, offset: Shape | None) -> Item:
        item = self._items.get((name, offset))
        if item is None:
            raise self.bad(name, f"{_what(offset)} has no place in storage_data", "incomplete")
        return item

    def _paths(self, data: Any) -> dict[str, Keys]:
        """The paths by name, if the planner flattened the state; other planner data is ignored."""
        if not isinstance(data, dict):
            return {}
        for name, path in data.items():
            fine = isinstance(path, tuple) and path and all(type(key) in (str, int) for key in path)
            if not isinstance(name, str):
                raise self.bad("", f"a name is a {type(name).__name__}")
            if not fine:
                raise self.bad(name, "its path in the state is no tuple of keys")
        return dict(data)


def _what(offset: Shape | None) -> str:
    return "it" if offset is None else f"the box at {list(offset)}"


def _dtype_of(properties: Any) -> str | None:
    if not is_a(properties, "TensorProperties"):
        return None
    state = properties.state
    dtype = state[0] if isinstance(state, tuple) and state else properties.member("dtype")
    return dtype if isinstance(dtype, str) else None


def read_index(folder: Path) -> tuple[Index, SourceFile]:
    """The index of a directory, and the file that it was read from."""
    file = SourceFile(folder / NAME)
    return parse_index(bytes(file.memory), file.path), file


def parse_index(data: bytes, path: Path) -> Index:
    """The index in the bytes of such a file; `path` is for messages."""
    return _Parser(path).parse(read_pickle(data, path))
