"""Finds the runs that a command names: each itself, or all below a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from deepfreeze.errors import make_error

RUNS_MAX = 10_000
_RECORD, _STEP = "deepfreeze.json", "step-"
_DEPTH_MAX = 32


def is_run(folder: Path) -> bool:
    """Whether the directory is a run. Its record may be lost while its steps are there."""
    if (folder / _RECORD).is_file():
        return True
    with os.scandir(folder) as entries:
        steps = [Path(each.path) for each in entries if each.name.startswith(_STEP)]
    return any((step / "manifest.json").is_file() for step in steps)


def runs_below(folder: Path) -> list[Path]:
    """The directory itself if it is a run, and every run below it, sorted. Follows no links."""
    found = []
    for place in _walk(folder, 0):
        found.append(place)
        if len(found) > RUNS_MAX:
            text = f"{folder}: more than {RUNS_MAX} runs; name a smaller tree"
            raise make_error("invalid_argument", text)
    return found


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    try:
        if is_run(folder):
            yield folder
        with os.scandir(folder) as entries:
            names = sorted(
                each.name
                for each in entries
                if each.is_dir(follow_symlinks=False) and not each.name.startswith((_STEP, "."))
            )
    except OSError:  # not ours to read, or deleted meanwhile
        return
    if depth < _DEPTH_MAX:
        for name in names:
            yield from _walk(folder / name, depth + 1)


def runs_of(paths: list[str]) -> list[Path]:
    """All runs that the arguments name, each once. CheckpointError if one of them names none."""
    found: dict[Path, None] = {}
    for text in paths:
        folder = Path(text).absolute()
        if not folder.is_dir():
            raise make_error("not_found", f"{text}: no such directory")
        runs = runs_below(folder)
        if not runs:
            raise make_error("not_found", f"{text}: neither a run nor a directory with runs below")
        found |= dict.fromkeys(runs)
    return list(found)
