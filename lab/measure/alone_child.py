"""The process that saves, or restores, once it is told how; answers with its measurements."""

import gc
import importlib
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.measure.files import files_in, forget, sync_all
from lab.measure.usage import all_written_bytes, cpu_seconds, forget_peak, memory_bytes, peak_bytes
from lab.networks import layout
from lab.programs.answer import carry_out
from lab.writers.saver import StorageSaver
from lab.writers.values import Values, wrong

SETTLE_SECONDS = 0.2  # between saves, for what deleting left to do


@dataclass(frozen=True)
class Request:
    what: str  # "save" or "restore"
    module: str
    kind: str
    layout: str  # where it is
    seed: int
    directory: str
    saves: int  # that are timed, the first included
    synced: bool  # by the saver; else save_once() does it


@dataclass
class Save:
    """One save; times in seconds from the call."""

    call_seconds: float
    captured_seconds: float  # until the state may be changed
    committed_seconds: float  # until the library says so
    durable_seconds: float  # until every file and name is synced
    cpu_seconds: float
    written_bytes: int
    peak_bytes: int  # above the process with its state
    file_bytes: int = 0


def make(request: Request) -> StorageSaver:
    kind: type[StorageSaver] = getattr(importlib.import_module(request.module), request.kind)
    return kind(layout.read(Path(request.layout)), Values(request.seed))


def save_all(saver: StorageSaver, request: Request) -> dict[str, Any]:
    directory = Path(request.directory)
    saver.fill(0)
    settle()
    before = memory_bytes("VmRSS")
    began = time.perf_counter()
    saver.open(directory)
    opened = time.perf_counter() - began
    saves = []
    for version in range(request.saves):
        saver.fill(version)
        settle()
        saves.append(save_once(saver, request, directory, version, before))
        saves[-1].file_bytes = tidied(saver, directory, version)
    save_and_change(saver, request, directory)
    return {"open_seconds": opened, "saves": [asdict(one) for one in saves]}


def save_and_change(saver: StorageSaver, request: Request, directory: Path) -> None:
    """One more, not timed: the state changes as soon as that is allowed. It is what is restored."""
    version = request.saves
    saver.fill(version)
    pending = saver.save(directory, version)
    pending.captured()
    saver.fill(version + 1)
    pending.committed()
    if not request.synced:
        sync_all(saver.place(directory, version))
    saver.remove(directory, version - 1)


def settle() -> None:
    gc.collect()
    time.sleep(SETTLE_SECONDS)


def save_once(
    saver: StorageSaver, request: Request, directory: Path, version: int, before: int
) -> Save:
    forget_peak()
    cpu, written = cpu_seconds(), all_written_bytes()
    began = time.perf_counter()
    pending = saver.save(directory, version)
    called = time.perf_counter()
    pending.captured()
    captured = time.perf_counter()
    pending.committed()
    committed = time.perf_counter()
    if not saver.place(directory, version).exists():
        raise LookupError("the save said that it was done, and nothing is there")
    if not request.synced:
        sync_all(saver.place(directory, version))
    durable = time.perf_counter()
    return Save(
        call_seconds=called - began,
        captured_seconds=captured - began,
        committed_seconds=committed - began,
        durable_seconds=durable - began,
        cpu_seconds=cpu_seconds() - cpu,
        written_bytes=all_written_bytes() - written,
        peak_bytes=max(0, peak_bytes() - before),
    )


def tidied(saver: StorageSaver, directory: Path, version: int) -> int:
    """Deletes the checkpoint before; returns the bytes of this one's files."""
    if version > 0:
        saver.remove(directory, version - 1)
    return sum(file.stat().st_size for file in files_in(saver.place(directory, version)))


def restore_all(saver: StorageSaver, request: Request) -> dict[str, Any]:
    directory, version = Path(request.directory), request.saves
    saver.fill(version + 1)  # what a restore that does nothing would leave, or a torn save
    forget(directory)
    settle()
    before, cpu = memory_bytes("VmRSS"), cpu_seconds()
    forget_peak()
    began = time.perf_counter()
    saver.restore(directory, version)
    seconds = time.perf_counter() - began
    found = {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds() - cpu,
        "peak_bytes": max(0, peak_bytes() - before),
        "wrong": wrong(saver.values, saver.layout, saver.contents(), version),
    }
    return found | load_partial(saver, directory, version)


def load_partial(saver: StorageSaver, directory: Path, version: int) -> dict[str, Any]:
    spec = saver.layout.partial
    forget(directory)
    settle()
    began = time.perf_counter()
    array = saver.load_one(directory, version, spec.name)
    seconds = time.perf_counter() - began
    same = saver.values.holds(array, saver.layout.positions[spec.name], version)
    return {
        "partial_name": spec.name,
        "partial_bytes": spec.nbytes,
        "partial_seconds": seconds,
        "partial_wrong": not same,
    }


def work(request: dict[str, Any]) -> dict[str, Any]:
    asked = Request(**request)
    saver = make(asked)
    try:
        return (save_all if asked.what == "save" else restore_all)(saver, asked)
    finally:
        saver.close()


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
