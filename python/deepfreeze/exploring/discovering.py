"""Finds the runs that a command names: each itself, or all below a directory."""

from __future__ import annotations

import os
from pathlib import Path

from deepfreeze import _core
from deepfreeze.errors import make_error


def runs_of(paths: list[str]) -> list[Path]:
    """All runs that the arguments name, each once. CheckpointError if one of them names none."""
    found: dict[Path, None] = {}
    for text in paths:
        folder = Path(text).absolute()
        if not folder.is_dir():
            raise make_error("not_found", f"{text}: no such directory")
        runs = _core.list_runs(os.fspath(folder))
        if not runs:
            raise make_error("not_found", f"{text}: neither a run nor a directory with runs below")
        found |= dict.fromkeys(runs)
    return list(found)
