"""Keeps the numbers of steps between two explorations, in the user's cache, never in a run.

A file belongs to one attempt, whose bytes never change, and to the attempt that it was compared
with. Every row of numbers has a checksum: if one does not match, its file is deleted, and the
numbers are computed again the next time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepfreeze.exploring.tensor_numbers import BINS, QUANTITIES
from deepfreeze.exploring.tensor_reading import Form

_FORMAT = 2
_TABLES = "tables"  # of all runs, each under its own checksum
_HEAD_BYTES = 512
_ROWS = len(QUANTITIES)
_ITEM = 8


@dataclass(frozen=True)
class Table:
    """The tensors of a step, and the kind of each; steps of one training share it."""

    forms: tuple[Form, ...]
    kinds: tuple[str, ...]

    def text(self) -> str:
        """As it is stored."""
        rows = [
            [form.key, form.dtype, form.shape, form.logical, kind]
            for form, kind in zip(self.forms, self.kinds, strict=True)
        ]
        return json.dumps(rows)

    @staticmethod
    def of(text: str) -> Table:
        """From its stored form."""
        rows = json.loads(text)
        forms = tuple(Form(row[0], row[1], tuple(row[2]), row[3]) for row in rows)
        return Table(forms, tuple(row[4] for row in rows))


@dataclass
class StepNumbers:
    """The numbers of one step: a row for each of QUANTITIES, a column for each tensor."""

    table: Table
    rows: NDArray[np.float64]
    histograms: NDArray[np.uint8]  # [tensor, bin]


def default_folder() -> Path:
    """The directory of the numbers, unless the user names another one."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return home / "deepfreeze" / "explore"


class StoredStep:
    """One file: its rows are read when they are asked for."""

    def __init__(self, path: Path, table: Table, sums: list[int]) -> None:
        self._path, self.table, self._sums = path, table, sums

    def row(self, place: int) -> NDArray[np.float64] | None:
        """The numbers of one quantity; None if they do not verify."""
        size = len(self.table.forms) * _ITEM
        data = self._read(_HEAD_BYTES + place * size, size, place)
        return None if data is None else np.frombuffer(data, "<f8")

    def histograms(self) -> NDArray[np.uint8] | None:
        """[tensor, bin]; None if the file does not verify."""
        count = len(self.table.forms)
        data = self._read(_HEAD_BYTES + _ROWS * count * _ITEM, count * BINS, _ROWS)
        return None if data is None else np.frombuffer(data, np.uint8).reshape(count, BINS)

    def whole(self) -> StepNumbers | None:
        """All rows; None if one does not verify."""
        count = len(self.table.forms)
        rows = [self.row(place) for place in range(_ROWS)]
        bins = self.histograms()
        if bins is None or any(row is None for row in rows):
            return None
        return StepNumbers(self.table, np.array(rows, np.float64).reshape(_ROWS, count), bins)

    def _read(self, offset: int, size: int, place: int) -> bytes | None:
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            data = os.pread(file, size, offset)
        except OSError:
            return None
        finally:
            os.close(file)
        if len(data) == size and zlib.crc32(data) == self._sums[place]:
            return data
        with contextlib.suppress(OSError):
            self._path.unlink()
        return None


class Cache:
    """The files of all runs that were explored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tables: dict[str, Table] = {}
        self.writable = True

    def find(self, run_id: str, name: str) -> StoredStep | None:
        """The step of this name, if it was kept; name() makes names."""
        path = self._folder / run_id / name
        try:
            with path.open("rb") as file:
                head = json.loads(file.read(_HEAD_BYTES))
                size = os.fstat(file.fileno()).st_size
            if head["format"] != _FORMAT or head["name"] != name or len(head["sums"]) != _ROWS + 1:
                return None
            table = self._table(str(head["table"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if table is None or size != _HEAD_BYTES + len(table.forms) * (_ROWS * _ITEM + BINS):
            return None
        return StoredStep(path, table, head["sums"])

    def keep(self, run_id: str, name: str, step: StepNumbers) -> StoredStep | None:
        """Writes the numbers of a step; None if the cache can't be written."""
        folder = self._folder / run_id
        text = step.table.text().encode()
        digest = hashlib.sha256(text).hexdigest()[:32]
        rows = [np.ascontiguousarray(row, "<f8").tobytes() for row in step.rows]
        bins = np.ascontiguousarray(step.histograms).tobytes()
        sums = [zlib.crc32(data) for data in (*rows, bins)]
        head = {"format": _FORMAT, "name": name, "table": digest, "sums": sums}
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if digest not in self._tables:
                tables = self._folder / _TABLES
                tables.mkdir(parents=True, exist_ok=True, mode=0o700)
                _publish(tables / digest, text)
                self._tables[digest] = step.table
            head_bytes = json.dumps(head).encode().ljust(_HEAD_BYTES)
            _publish(folder / name, b"".join([head_bytes, *rows, bins]))
        except OSError:
            self.writable = False
            return None
        return StoredStep(folder / name, self._tables[digest], sums)

    def _table(self, digest: str) -> Table | None:
        if digest not in self._tables:
            text = (self._folder / _TABLES / digest).read_bytes()
            if hashlib.sha256(text).hexdigest()[:32] != digest:
                return None
            self._tables[digest] = Table.of(text.decode())
        return self._tables[digest]


def name_of(attempt: str, digest: str, earlier: str) -> str:
    """The file of an attempt with these header CRCs, compared with the earlier attempt."""
    return f"{attempt}-{digest}-{earlier or 'none'}.numbers"


def digest_of(attempt_path: str) -> str:
    """Digits for the header CRCs that the manifest lists; it verified when it was listed."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        manifest: dict[str, Any] = json.loads(Path(attempt_path, "manifest.json").read_bytes())
        listed = ",".join(file["header_crc"] for file in manifest["files"])
        return listed if len(listed) == 8 else hashlib.sha256(listed.encode()).hexdigest()[:16]
    return "00000000"


def _publish(path: Path, data: bytes) -> None:
    """Writes a file under a temporary name and renames it: a reader sees all of it, or nothing."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
