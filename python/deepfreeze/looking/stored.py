"""The contents of one commit of an id: its leaves by key, and a run made of some of them."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

from deepfreeze import _core
from deepfreeze.base.names import KeyFilter, join
from deepfreeze.base.progress import Progress
from deepfreeze.dcp.identity import METADATA
from deepfreeze.errors import CheckpointError, CorruptError
from deepfreeze.frameworks.torch.files import tensor_bytes
from deepfreeze.importing.content import Reading, content_of
from deepfreeze.importing.dcp import Reader, read_leaves
from deepfreeze.importing.dcp_index import Index, Item, StoredTensor, parse_index
from deepfreeze.importing.saving import store
from deepfreeze.importing.source_files import SourceFile
from deepfreeze.importing.unflatten import unflatten
from deepfreeze.looking.ids import Commit, Id
from deepfreeze.looking.stream_file import StreamFile
from deepfreeze.restoring.restorer import load_tree
from deepfreeze.state.dtypes import stored_bytes, stored_form


class Stored:
    """One commit, with its index already read."""

    def __init__(self, one: Id, commit: Commit) -> None:
        self.id, self.commit = one, commit
        self._path = one.identity.folder / METADATA
        data = load_tree(commit.info, KeyFilter(None))["metadata"]
        self._index = parse_index(data, self._path)
        self._files: dict[str, StreamFile] = {}
        self.keys = {reduce(join, path, ""): name for name, path in self._index.paths.items()
                     if name in self._index.leaves}  # fmt: skip

    def tensors(self) -> list[dict[str, Any]]:
        """Each tensor as `show --json` has it, by key. Reads no data."""
        leaves = ((key, self._index.leaves[name]) for key, name in sorted(self.keys.items()))
        return [_described(key, leaf) for key, leaf in leaves if isinstance(leaf, StoredTensor)]

    def verify(self) -> None:
        """Reads every block of all streams. CorruptError."""
        for name, info in self.commit.streams.items():
            faults = _core.verify_checkpoint(info)
            if faults:
                file = self.id.identity.folder / name
                raise CorruptError(f"{file}: {faults[0].file}: {faults[0].cause}")

    def make_run(self, run: Path, wants: Callable[[str], bool]) -> None:
        """Writes the leaves with the keys that are wanted to a new run.

        If only an object's own code could load it, its place has a text that says so.
        """
        index = self._part(wants)
        reading = Reading(run.parent, Progress)
        reader = Reader(self._path, index, reading, self._open)
        kept = dict(index.leaves)
        texts = {}
        for name, leaf in index.leaves.items():
            text = self._refusal(reader, name, leaf) if isinstance(leaf, Item) else None
            if text is not None:
                texts[name] = text
                del kept[name]
        content = read_leaves(Index(kept, index.paths), self._path, reading, self._open)
        if texts:
            content = self._with_texts(reader, kept, index, texts)
        size = sum(entry.bytes for entry in content.entries)
        with Progress("read", size) as progress:
            store(content, run, self.commit.info.step, {}, progress)

    def _with_texts(
        self, reader: Reader, kept: dict[str, Any], index: Index, texts: dict[str, str]
    ) -> Any:
        values = {name: reader.value(name, leaf, _ignore) for name, leaf in kept.items()}
        values |= texts
        pairs = ((index.paths[name], values[name]) for name in index.leaves)
        return content_of(unflatten(pairs), self._path.parent, reader.files)

    def _refusal(self, reader: Reader, name: str, leaf: Item) -> str | None:
        try:
            reader.value(name, leaf, _ignore)
        except CheckpointError as error:
            if error.code != "unsupported":
                raise
            file = self._open(leaf.file)
            crc = zlib.crc32(file.memory[leaf.offset : leaf.offset + leaf.bytes])
            cause = str(error).rpartition(": ")[2]
            return f"not loaded: {leaf.bytes} bytes, CRC-32 {crc:08x}: {cause}"
        return None

    def _part(self, wants: Callable[[str], bool]) -> Index:
        names = {name for key, name in self.keys.items() if wants(key)}
        leaves = {name: leaf for name, leaf in self._index.leaves.items() if name in names}
        return Index(leaves, self._index.paths)

    def is_object(self, key: str) -> bool:
        """Whether that leaf is no tensor."""
        return isinstance(self._index.leaves[self.keys[key]], Item)

    def _open(self, name: str) -> SourceFile:
        if name not in self._files:
            self._files[name] = StreamFile(self.commit.streams[name])
        return self._files[name]

    @property
    def members(self) -> dict[str, Any]:
        """Names the checkpoint in JSON documents."""
        info = self.commit.info
        return {"id": self.id.name, "path": os.fspath(self.id.identity.folder),
                "step": info.step, "attempt": info.attempt_id}  # fmt: skip


def _ignore(_: int) -> None:
    pass


def _described(key: str, leaf: StoredTensor) -> dict[str, Any]:
    item_bytes = tensor_bytes(leaf.dtype, ())
    dtype, shape, logical = stored_form(leaf.dtype, leaf.shape, item_bytes)
    found = {"key": key, "dtype": dtype, "shape": list(shape)}
    if logical:
        found["logical_dtype"] = logical
    return {**found, "bytes": stored_bytes(dtype, shape)}
