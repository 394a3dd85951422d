"""Directories of torch.distributed.checkpoint.

A tensor that was written in one piece stays in its file. A tensor of several boxes is put together
in scratch memory, box by box.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepfreeze.errors import CorruptError
from deepfreeze.frameworks.torch.files import (
    RefusedError,
    Tensor,
    copy_box,
    describe,
    empty_in,
    load,
    tensor_bytes,
    view_of,
)
from deepfreeze.importing.content import Content, Reading, content_of
from deepfreeze.importing.dcp_index import Chunk, Index, Item, StoredTensor, read_index
from deepfreeze.importing.scratch import Scratch, aligned
from deepfreeze.importing.source_files import Done, SourceFile, fault
from deepfreeze.importing.torch_file import refused, value_of
from deepfreeze.importing.unflatten import unflatten
from deepfreeze.importing.zip_records import Archive


def read(folder: Path, reading: Reading) -> Content:
    """The state that was saved; with its nesting, if the planner kept that."""
    index, index_file = read_index(folder)
    content = read_leaves(index, index_file.path, reading, lambda name: SourceFile(folder / name))
    content.files.insert(0, index_file)
    return content


def read_leaves(
    index: Index, path: Path, reading: Reading, open_file: Callable[[str], SourceFile]
) -> Content:
    """The leaves of the index, whose own path is `path`; `open_file` opens a file by its name."""
    reader = Reader(path, index, reading, open_file)
    with reading.progress("check", reader.bytes) as progress:
        values = {
            name: reader.value(name, leaf, progress.add) for name, leaf in index.leaves.items()
        }
    try:
        state = unflatten((index.paths[name], value) for name, value in values.items())
    except CorruptError as cause:
        raise fault(path, "", cause) from cause
    content = content_of(state, path.parent, reader.files)
    content.warnings += index.warnings
    return content


class Reader:
    """Reads the leaves of an index from the files that it names."""

    def __init__(
        self,
        path: Path,
        index: Index,
        reading: Reading,
        open_file: Callable[[str], SourceFile],
    ) -> None:
        self._open_file = open_file
        self._files: dict[str, SourceFile] = {}
        items = {name: _items(leaf) for name, leaf in index.leaves.items()}
        for name, places in items.items():
            for place in places:
                self._check_within(name, place)
        self.bytes = sum(place.bytes for places in items.values() for place in places)
        room = sum(
            aligned(_bytes_of(leaf))
            for leaf in index.leaves.values()
            if isinstance(leaf, StoredTensor) and not _in_one_piece(leaf)
        )
        # Checked before room is taken: elements are stored uncompressed, and each only once.
        there = sum(file.bytes for file in self._files.values())
        if max(room, self.bytes) > there:
            raise fault(
                path.parent, "", f"its items are larger than its files, which have {there} bytes"
            )
        self._scratch = Scratch(reading.scratch_folder, room) if room else None

    @property
    def files(self) -> list[SourceFile]:
        """All files that were opened."""
        return list(self._files.values())

    def value(self, name: str, leaf: StoredTensor | Item, done: Done) -> Any:
        """The tensor or object of that name."""
        if isinstance(leaf, Item):
            return self._object(name, leaf, done)
        if _in_one_piece(leaf):
            return self._chunk(name, leaf, leaf.chunks[0], done)
        return self._assembled(name, leaf, done)

    def _assembled(self, name: str, tensor: StoredTensor, done: Done) -> Tensor:
        size = _bytes_of(tensor)
        memory = self._scratch.take(size) if self._scratch else memoryview(b"")
        whole = empty_in(memory, tensor.dtype, tensor.shape)
        for chunk in tensor.chunks:
            copy_box(whole, chunk.box.slices, self._chunk(name, tensor, chunk, done))
        return whole

    def _chunk(self, name: str, tensor: StoredTensor, chunk: Chunk, done: Done) -> Tensor:
        """The chunk as a tensor that lies in the mapped file."""
        archive = self._verified(name, chunk.item, done)
        if archive.is_big_endian:  # torch would swap bytes that describe() does not read
            raise archive.fault("it was written on a big-endian machine", "unsupported")
        try:
            found = describe(archive.stream())
        except RefusedError as cause:
            raise refused(archive, cause) from cause
        if (found.dtype, found.shape) != (tensor.dtype, chunk.box.shape):
            raise archive.fault(
                f"a {found.dtype}{list(found.shape)}, but the metadata has "
                f"{tensor.dtype}{list(chunk.box.shape)}"
            )
        data = [record for key, record in archive.records.items() if key.startswith("data/")]
        if len(data) != 1 or data[0].bytes != found.storage_bytes:
            raise archive.fault(f"it lacks its one record of {found.storage_bytes} bytes")
        return view_of(archive.file.array(data[0].begin, data[0].bytes), found)

    def _object(self, name: str, item: Item, done: Done) -> Any:
        archive = self._verified(name, item, done)
        return value_of(archive, lambda: load(archive.stream()))

    def _verified(self, name: str, item: Item, done: Done) -> Archive:
        archive = Archive(self._file(item.file), item.offset, item.bytes, name)
        archive.verify(done)
        return archive

    def _check_within(self, name: str, item: Item) -> None:
        file = self._file(item.file)
        if item.offset + item.bytes > file.bytes:
            raise fault(
                file.path,
                f"at {item.offset} ({name})",
                f"{item.bytes} bytes should be there, the file ends at {file.bytes}: it is cut",
            )

    def _file(self, name: str) -> SourceFile:
        if name not in self._files:
            self._files[name] = self._open_file(name)
        return self._files[name]


def _items(leaf: StoredTensor | Item) -> list[Item]:
    return [leaf] if isinstance(leaf, Item) else [chunk.item for chunk in leaf.chunks]


def _in_one_piece(tensor: StoredTensor) -> bool:
    """Whether one chunk is the whole tensor."""
    return len(tensor.chunks) == 1 and tensor.chunks[0].box.shape == tensor.shape


def _bytes_of(tensor: StoredTensor) -> int:
    return tensor_bytes(tensor.dtype, tensor.shape)
