"""Starts the process that measures one saver in one round, and takes what it says."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab.measure.alone_child import Request
from lab.measure.files import sync_directory
from lab.measure.program import try_to_ask
from lab.writers.menu import ROOT, Entry, folder_of

SECONDS_MAX = 900.0
ERROR_LINES = 3


def measure(
    entry: Entry, layout: Path, place: Path, seed: int, saves: int, seconds_max: float = SECONDS_MAX
) -> dict[str, Any]:
    """Saves in one process and restores in another; with "error" where either failed."""
    with checkpoints(place):
        saved = ask(entry, request(entry, "save", layout, place, seed, saves), seconds_max)
        if "error" in saved:
            return saved
        wanted = request(entry, "restore", layout, place, seed, saves)
        restored = ask(entry, wanted, seconds_max)
        return saved | {"restore": restored} | faults(restored)


def save_alone(
    entry: Entry, layout: Path, place: Path, seed: int, saves: int, seconds_max: float = SECONDS_MAX
) -> dict[str, Any]:
    with checkpoints(place):
        return ask(entry, request(entry, "save", layout, place, seed, saves), seconds_max)


@contextmanager
def checkpoints(place: Path) -> Iterator[None]:
    """Their directory, gone for good before the next one is measured."""
    place.mkdir()
    try:
        yield
    finally:
        shutil.rmtree(place, ignore_errors=True)
        sync_directory(place.parent)


def faults(restored: dict[str, Any]) -> dict[str, str]:
    """What makes a saver fail whose save went well."""
    if "error" in restored:
        return {"error": f"restore: {restored['error']}"}
    if restored["wrong"]:
        names = ", ".join(restored["wrong"][:ERROR_LINES])
        return {"error": f"restored wrong bytes in {len(restored['wrong'])} tensors: {names}"}
    if restored["partial_wrong"]:
        return {"error": f"loaded wrong bytes of {restored['partial_name']}"}
    return {}


def request(entry: Entry, what: str, layout: Path, place: Path, seed: int, saves: int) -> Request:
    return Request(
        what=what,
        module=entry.module,
        kind=entry.kind,
        layout=str(layout),
        seed=seed,
        directory=str(place),
        saves=saves,
        synced=entry.durable,
    )


def ask(entry: Entry, wanted: Request, seconds_max: float) -> dict[str, Any]:
    if not entry.python.exists():
        return {"error": f"not installed: {folder_of(entry.environment).relative_to(ROOT)}"}
    # Not on the device that is measured: that may be full.
    with tempfile.TemporaryDirectory(prefix="storage-") as folder:
        return try_to_ask(
            entry.python, "lab.measure.alone_child", asdict(wanted), Path(folder),
            seconds_max=seconds_max, variables=environment(),
        )  # fmt: skip


def environment() -> dict[str, str]:
    """DeepSpeed compiles into build/, with tools that stand beside the interpreter."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    extensions = str(ROOT / "build" / "torch-extensions")
    return {"PATH": path, "TORCH_EXTENSIONS_DIR": extensions, "MAX_JOBS": "2"}
