"""The directory of one deepfreeze:// id: a run for each stream, and one for the metadata.

    files/__0_0.distcp/   a version for each time that the stream was written
    metadata/             a version for each commit: DCP's metadata, and which version of each
                          stream it goes with

1. Each rank writes its streams as new durable versions, to which nothing refers yet.
2. Rank 0 writes the metadata and renames it. The rename adds a version to metadata/ that names the
   versions of all its streams. That is the commit; a process that dies before it changes nothing.
3. Rank 0 deletes old versions of streams: those that neither of the two newest metadata versions
   refers to, if they existed when the older of these two was committed. Anything newer may be
   a stream that another process is writing now.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deepfreeze import _core
from deepfreeze.base.names import KeyFilter
from deepfreeze.dcp.metadata_names import streams_in
from deepfreeze.dcp.streams import size_of_version
from deepfreeze.dcp.versions import commit, forget, versions
from deepfreeze.errors import GONE, CheckpointError, CorruptError, IncompleteError
from deepfreeze.restoring.restorer import load_tree, newest_good

log = logging.getLogger("deepfreeze")

METADATA = ".metadata"
_METADATA_KEPT = 2
_FOLDERS = _FILES_FOLDER, _METADATA_FOLDER = "files", "metadata"

Verify = Literal["records", "blocks"]


@dataclass(frozen=True)
class Committed:
    """One version of the metadata, and the versions of the streams that it names."""

    metadata: bytes
    streams: dict[str, _core.CheckpointInfo]


class Identity:
    """One id. Every call reads the directory again, and raises CheckpointError if that fails."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check_name(self) -> None:
        """ValueError if the streams of this id could be taken for those of the directory above."""
        if self.folder.name in _FOLDERS:
            name = self.folder.name
            raise ValueError(f"deepfreeze://{self.folder}: the name of an id can't be {name!r}")

    @property
    def inner_folders(self) -> list[Path]:
        """The directories in it that belong to other ids."""
        folders = (one for one in self.folder.iterdir() if one.is_dir())
        return sorted(one for one in folders if not self.exists or one.name not in _FOLDERS)

    @property
    def exists(self) -> bool:
        """Whether something was written under it."""
        runs = [self._metadata_run, *self._stream_runs()]
        return any((run / "deepfreeze.json").exists() for run in runs)

    @property
    def _metadata_run(self) -> Path:
        return self.folder / _METADATA_FOLDER

    @property
    def runs(self) -> list[Path]:
        """The small runs in it."""
        return [run for run in [self._metadata_run, *self._stream_runs()] if run.is_dir()]

    def commits(self) -> list[_core.CheckpointInfo]:
        """The versions of the metadata, newest first, damaged ones too."""
        return versions(self._metadata_run)

    def _stream_run(self, name: str) -> Path:
        return self.folder / _FILES_FOLDER / name

    def _stream_runs(self) -> list[Path]:
        files = self.folder / _FILES_FOLDER
        return sorted(files.iterdir()) if files.is_dir() else []

    def write_stream(self, name: str, data: Any) -> None:
        """Step 1: one more version."""
        commit(self._stream_run(name), {"data": data})

    def commit_metadata(self, data: bytes) -> None:
        """Steps 2 and 3."""
        path = self.folder / METADATA
        pins = {name: self._pin(name, size) for name, size in streams_in(data, path).items()}
        present = {
            run.name: [_id_of(info) for info in versions(run)] for run in self._stream_runs()
        }
        state = {"metadata": data, "pins": pins, "present": present}
        commit(self._metadata_run, state, _METADATA_KEPT)
        self._collect()

    def expired(self) -> list[_core.CheckpointInfo]:
        """The versions that step 3 deletes. CheckpointError."""
        newest = versions(self._metadata_run)[:_METADATA_KEPT]
        kept = [load_tree(info, KeyFilter(None)) for info in newest]
        older = kept[-1]["present"] if len(kept) == _METADATA_KEPT else {}
        return [
            info
            for name, present in older.items()
            for info in versions(self._stream_run(name))
            if _id_of(info) in present
            and _id_of(info) not in [state["pins"].get(name) for state in kept]
        ]

    def _pin(self, name: str, size: int) -> list[Any]:
        """The newest version of the stream, which its rank has written before."""
        infos = versions(self._stream_run(name))
        if not infos or infos[0].fault:
            cause = infos[0].fault if infos else "was never written"
            raise IncompleteError(f"commit {self.folder}: {name} {cause}")
        found = size_of_version(infos[0])
        if found < size:
            raise IncompleteError(
                f"commit {self.folder}: {name} has {found} bytes, its metadata needs {size}"
            )
        return _id_of(infos[0])

    def committed(self, verify: Verify) -> Committed:
        """The newest commit that verifies; FileNotFoundError if nothing was ever committed."""
        found = newest_good(
            lambda: versions(self._metadata_run),
            lambda info: self.whole(info, verify),
        )
        if found is None:
            raise FileNotFoundError(f"{self.folder / METADATA}: nothing is committed")
        return found[1]

    def whole(self, info: _core.CheckpointInfo, verify: Verify) -> Committed:
        """A version of the metadata with its streams.

        CorruptError if one of the streams does not verify; code "gone" if one was removed.
        """
        state = load_tree(info, KeyFilter(None))
        streams = {name: self._pinned(name, pin) for name, pin in state["pins"].items()}
        for name, stream in streams.items():
            size_of_version(stream)  # opens it, which verifies its index
            faults = _core.verify_checkpoint(stream) if verify == "blocks" else []
            if faults:
                raise CorruptError(f"{self.folder / name}: {faults[0].file}: {faults[0].cause}")
        return Committed(state["metadata"], streams)

    def _pinned(self, name: str, pin: list[Any]) -> _core.CheckpointInfo:
        found = [info for info in versions(self._stream_run(name)) if _id_of(info) == pin]
        if not found:
            raise CheckpointError(f"{self.folder / name}: version {pin[0]} is gone", code=GONE)
        return found[0]

    def _collect(self) -> None:
        """Step 3. A version that can't be deleted stays until the next commit."""
        try:
            for info in self.expired():
                _core.delete_checkpoint(info)
        except CheckpointError as error:
            log.warning("%s: old versions stay: %s", self.folder, error)

    def remove(self) -> None:
        """Removes the id. A rename hides it at once; its files are deleted afterwards."""
        forget(self.folder)
        gone = self.folder.with_name(f"{self.folder.name}.{secrets.token_hex(4)}.removed")
        self.folder.rename(gone)
        _sync(gone.parent)
        shutil.rmtree(gone)


def _id_of(info: _core.CheckpointInfo) -> list[Any]:
    """Tells a version from all others, even from a deleted one that had the same number."""
    return [info.step, info.attempt_id]


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
