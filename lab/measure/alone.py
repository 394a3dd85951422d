"""Starts the process that measures one saver in one round, and takes what it says."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab.measure.alone_child import Request
from lab.measure.files import sync_directory
from lab.writers.menu import ROOT, Entry, folder_of

SECONDS_MAX = 900.0
ERROR_LINES = 3
FOLDERS = re.compile(r"/(?:[\w.+~-]+/)+")


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


def absent(entry: Entry) -> str:
    if entry.python.exists():
        return ""
    return f"not installed: {folder_of(entry.environment).relative_to(ROOT)}"


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
    missing = absent(entry)
    if missing:
        return {"error": missing}
    # Not on the device that is measured: that may be full.
    with tempfile.TemporaryDirectory(prefix="storage-") as folder:
        asked, answered = Path(folder) / "request.json", Path(folder) / "answer.json"
        asked.write_text(json.dumps(asdict(wanted)))
        command = [str(entry.python), "-m", "lab.measure.alone_child", str(asked), str(answered)]
        said = run(command, seconds_max)
        if not answered.exists():
            return {"error": gist(f"{wanted.what}: the process ended without an answer: {said}")}
        found: dict[str, Any] = json.loads(answered.read_text())
    return found | {"error": gist(found["error"])} if "error" in found else found


def gist(error: str) -> str:
    """Its first line and its last, between which tracebacks stand; without this machine's paths."""
    lines = FOLDERS.sub("", error).strip().splitlines() or [""]
    return lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1].strip()}"


def run(command: list[str], seconds_max: float = SECONDS_MAX) -> str:
    """Runs it in a group of its own, which is ended whatever happens; returns its last words."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=seconds_max)
        return " ".join(errors.strip().splitlines()[-ERROR_LINES:])
    except subprocess.TimeoutExpired:
        return f"took more than {seconds_max:g} s"
    finally:
        end_group(process)


def end_group(process: subprocess.Popen[str]) -> None:
    """Some savers leave processes behind."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def environment() -> dict[str, str]:
    """DeepSpeed compiles into build/, with tools that stand beside the interpreter."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    extensions = str(ROOT / "build" / "torch-extensions")
    return {**os.environ, "PATH": path, "TORCH_EXTENSIONS_DIR": extensions, "MAX_JOBS": "2"}
