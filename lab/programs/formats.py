"""Saves one state by each of some writers; tells what their files are."""

import gc
import hashlib
import importlib
import sys
from pathlib import Path
from typing import Any

from lab.measure.containers import container_of
from lab.measure.files import files_in
from lab.networks import layout
from lab.programs.answer import carry_out
from lab.writers.saver import StorageSaver
from lab.writers.values import Values

VERSION = 1  # of the values: those of another process are the same


def work(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [told(one, request) for one in request["writers"]]


def told(writer: dict[str, str], request: dict[str, Any]) -> dict[str, Any]:
    """One writer's failure is not the others'."""
    place = Path(request["directory"]) / writer["name"]
    place.mkdir()
    try:
        return {"name": writer["name"], **saved(writer, request, place)}
    except Exception as error:  # becomes that writer's row
        return {"name": writer["name"], "error": f"{type(error).__name__}: {error}"}
    finally:
        gc.collect()


def saved(writer: dict[str, str], request: dict[str, Any], place: Path) -> dict[str, Any]:
    kind: type[StorageSaver] = getattr(importlib.import_module(writer["module"]), writer["kind"])
    saver = kind(layout.read(Path(request["layout"])), Values(request["seed"]))
    try:
        saver.fill(VERSION)
        saver.open(place)
        return save(saver, place)
    finally:
        saver.close()


def save(saver: StorageSaver, place: Path) -> dict[str, Any]:
    pending = saver.save(place, 0)
    pending.captured()
    pending.committed()
    root = saver.place(place, 0)
    files = files_in(root)
    return {
        "files": len(files),
        "file_bytes": sum(file.stat().st_size for file in files),
        "container": ", ".join(sorted({container_of(file) for file in files})),
        "digests": sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files),
    }


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
