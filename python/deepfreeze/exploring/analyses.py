"""Results that programs have left beside a run: analysis/NAME.json, one matrix each.

The files are another program's: names and contents are data, and a bad file is named with its
fault. docs/explore.md describes the format.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from deepfreeze.errors import CheckpointError, make_error
from deepfreeze.exploring.steps import ODD

FOLDER, _SUFFIX = "analysis", ".json"
_FORMAT = 1
_FILE_BYTES_MAX = 4 << 20
_FILES_MAX = 100  # of one run; the first by name
_CELLS_MAX = 100_000
_TEXT_MAX = 4_096  # characters


def names_of(run: Path) -> list[str]:
    """The names of a run's analyses, in order: their files without `.json`."""
    try:
        found = os.listdir(run / FOLDER)
    except OSError:  # most runs have none
        return []
    names = [name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX)]
    return sorted(name for name in names if name)[:_FILES_MAX]


def listed(run: Path) -> list[dict[str, str]]:
    """Name, title and fault of each; the fault is empty if it can be drawn."""
    rows = []
    for name in names_of(run):
        try:
            rows.append({"name": _shown(name), "title": read(run, name)["title"], "fault": ""})
        except CheckpointError as error:
            rows.append({"name": _shown(name), "title": _shown(name), "fault": str(error)})
    return rows


def named(run: Path, name: str) -> dict[str, Any]:
    """The analysis that a client names: no path is made of a name that is not in the list."""
    found = next((each for each in names_of(run) if _shown(each) == name), None)
    if found is None:
        raise make_error("not_found", "no such analysis here")
    return read(run, found)


def read(run: Path, name: str) -> dict[str, Any]:
    """One analysis, checked: title, about, value, log, rows, columns, values. CheckpointError."""
    try:
        return _checked(json.loads(_bytes(run / FOLDER, name + _SUFFIX)))
    except ODD as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise make_error(
            "corrupt", f"{FOLDER}/{_shown(name)}{_SUFFIX}: {cause}; write it again"
        ) from error


def _shown(name: str) -> str:
    return os.fsencode(name).decode(errors="replace")


def _bytes(folder: Path, name: str) -> bytes:
    """The file's content. No link is followed out of the run, and no pipe is waited for."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = os.open(folder, flags | os.O_DIRECTORY)
    try:
        handle = os.open(name, flags | os.O_NONBLOCK, dir_fd=directory)
    finally:
        os.close(directory)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("no regular file")
        data = file.read(_FILE_BYTES_MAX + 1)
    if len(data) > _FILE_BYTES_MAX:
        raise ValueError(f"more than {_FILE_BYTES_MAX >> 20} MiB")
    return data


def _checked(record: Any) -> dict[str, Any]:
    if type(record) is not dict or record.get("format") != _FORMAT:
        raise ValueError(f"no record of format {_FORMAT}")
    rows, columns = _axis(record, "rows"), _axis(record, "columns")
    height, width = len(rows["names"]), len(columns["names"])
    if height * width > _CELLS_MAX:
        raise ValueError(f"more than {_CELLS_MAX:,} numbers")
    values = record.get("values")
    if type(values) is not list or [len(row) for row in values] != [width] * height:
        raise ValueError(f"values: not {height} rows of {width} numbers")
    return {
        "title": _text(record, "title"),
        "about": _text(record, "about", ""),
        "value": _text(record, "value"),
        "log": record.get("log") is True,
        "rows": rows,
        "columns": columns,
        "values": [[_number(value) for value in row] for row in values],
    }


def _axis(record: dict[str, Any], name: str) -> dict[str, Any]:
    axis = record.get(name)
    names = axis.get("names") if type(axis) is dict else None
    if type(axis) is not dict or type(names) is not list or not names:
        raise ValueError(f"{name}: no title and names")
    if not all(type(each) is str and len(each) <= _TEXT_MAX for each in names):
        raise ValueError(f"{name}: a name is no text, or longer than {_TEXT_MAX} characters")
    return {"title": _text(axis, "title"), "names": names}


def _text(record: dict[str, Any], name: str, default: str | None = None) -> str:
    text = record.get(name, default)
    if type(text) is not str or len(text) > _TEXT_MAX or (default is None and not text):
        raise ValueError(f"{name}: no text of 1 to {_TEXT_MAX} characters")
    return text


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float):
        raise ValueError(f"values: {str(value)[:40]!r} is no number")
    return float(value)
