"""deepfreeze:// for fsspec: the streams that DCP writes, each with versions, committed together.

A path is the directory of an id on this machine, or the path of a stream in it. Only the calls that
DCP makes are supported: write a stream once, read it, rename .metadata.tmp to .metadata.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import torch
from fsspec import AbstractFileSystem

from deepfreeze.dcp.identity import METADATA, Committed, Identity, Verify
from deepfreeze.dcp.streams import WriteStream, open_version, size_of_version
from deepfreeze.errors import CheckpointError

_TEMPORARY = METADATA + ".tmp"


class DeepFreezeFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Ids and their streams.

    A stream is read in the version that goes with the metadata that this object has opened last,
    and with the newest otherwise. `verify="blocks"` reads all of it before, so that a damaged one
    makes it fall back; by "records" alone a damaged block is a CorruptError when it is read.

    A relative id is taken from the directory in which the program is when this object is made. For
    one load or save at a time.
    """

    protocol = "deepfreeze"
    root_marker = "/"
    cachable = False  # each reader stays with the versions that it has begun with

    def __init__(self, *args: Any, verify: Verify = "records", **options: Any) -> None:
        super().__init__(*args, **options)
        if verify not in ("records", "blocks"):
            raise ValueError(f"verify {verify!r}: not records or blocks")
        self._verify: Verify = verify
        self._here = _current_directory()
        self._opened: dict[Path, Committed] = {}
        self._temporary: dict[Path, bytes] = {}  # metadata before it is renamed

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else os.path.normpath(stripped)

    def _place(self, path: Any) -> Path:
        return Path(os.path.abspath(os.path.join(self._here, self._strip_protocol(path))))

    def _committed(self, folder: Path) -> Committed:
        found = self._opened.get(folder)
        if found is None:
            found = self._opened[folder] = Identity(folder).committed(self._verify)
        return found

    # Streams

    def _open(self, path: Any, mode: str = "rb", **options: Any) -> io.BufferedIOBase:
        place = self._place(path)
        if mode == "rb":
            return self._reading(place)
        if mode == "wb":
            return self._writing(place)
        raise ValueError(f"open deepfreeze://{place}: mode {mode!r} is not rb or wb")

    def _reading(self, place: Path) -> io.BufferedIOBase:
        if place.name == METADATA:
            self._opened.pop(place.parent, None)
            return io.BytesIO(self._committed(place.parent).metadata)
        info = self._committed(place.parent).streams.get(place.name)
        if info is None:
            raise FileNotFoundError(f"{place}: the metadata names no such stream")
        return open_version(str(place), info)

    def _writing(self, place: Path) -> WriteStream:
        identity = self._own(place.parent)
        if place.name == _TEMPORARY:

            def keep(data: torch.Tensor) -> None:
                self._temporary[place] = data.numpy().tobytes()

            return WriteStream(place.name, keep)
        return WriteStream(place.name, lambda data: identity.write_stream(place.name, data))

    def mv(self, path1: Any, path2: Any, **options: Any) -> None:
        """Commits the metadata; nothing else can be renamed."""
        source, target = self._place(path1), self._place(path2)
        if (source.name, target) != (_TEMPORARY, source.with_name(METADATA)):
            raise CheckpointError(
                f"rename {source} to {target}: only {_TEMPORARY} to {METADATA}; "
                "use_collectives=False is not supported",
                code="unsupported",
            )
        data = self._temporary.pop(source, None)
        if data is None:
            raise FileNotFoundError(f"{source}: this file system has not written it")
        self._opened.pop(source.parent, None)
        self._own(source.parent).commit_metadata(data)

    def _own(self, folder: Path) -> Identity:
        """The id in that directory, for writing. CheckpointError if the directory is a run."""
        if (folder / "deepfreeze.json").exists():
            raise CheckpointError(
                f"deepfreeze://{folder}: it is a run; deepfreeze.dcp.StorageWriter adds to it",
                code="exists",
            )
        identity = Identity(folder)
        identity.check_name()
        return identity

    # Directories

    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        """As os.makedirs()."""
        place = self._place(path)
        self._own(place)
        place.mkdir(parents=True, exist_ok=exist_ok)

    def mkdir(self, path: Any, create_parents: bool = True, **options: Any) -> None:
        """As os.mkdir(), or os.makedirs()."""
        place = self._place(path)
        self._own(place)
        place.mkdir(parents=create_parents)

    def info(self, path: Any, **options: Any) -> dict[str, Any]:
        """Name, size and type of an id, a directory of ids, or a stream."""
        place = self._place(path)
        if place.is_dir():
            return {"name": str(place), "size": 0, "type": "directory"}
        found = self._committed(place.parent)
        if place.name == METADATA:
            return _file(place, len(found.metadata))
        if place.name not in found.streams:
            raise FileNotFoundError(f"{place}: the metadata names no such stream")
        return _file(place, size_of_version(found.streams[place.name]))

    def ls(self, path: Any, detail: bool = True, **options: Any) -> list[Any]:
        """The committed streams of an id, or the ids in a directory."""
        place = self._place(path)
        inner = [place / name for name in self._streams_in(place)] if place.is_dir() else [place]
        if place.is_dir():
            inner += Identity(place).inner_folders
        entries = [self.info(one) for one in inner]
        return entries if detail else [entry["name"] for entry in entries]

    def _streams_in(self, folder: Path) -> list[str]:
        try:
            return [METADATA, *self._committed(folder).streams]
        except FileNotFoundError:
            return []

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes ids. Single streams stay: DCP would remove the one it is going to replace."""
        places = path if isinstance(path, list) else [path]
        for place in map(self._place, places):
            if place.is_dir():
                self._remove_id(place, recursive)
            else:
                self.rm_file(place)

    def rm_file(self, path: Any) -> None:
        """Does nothing: old metadata counts until the new is committed, and streams stay."""

    def _remove_id(self, place: Path, recursive: bool) -> None:
        if not recursive or not Identity(place).exists:
            what = "it is a directory" if not recursive else "it is no id"
            raise IsADirectoryError(f"remove deepfreeze://{place}: {what}")
        self._opened.pop(place, None)
        Identity(place).remove()


def _current_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was deleted, which does no harm if all ids are absolute paths
        return ""


def _file(place: Path, size: int) -> dict[str, Any]:
    return {"name": str(place), "size": size, "type": "file"}
