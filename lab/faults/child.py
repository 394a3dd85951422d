"""The nursery: imports a library once, then forks a process for every save and every load.

Reads jobs as lines of JSON, writes what happens as lines of JSON. A forked process has used
nothing of the library yet; it may be killed, or crash, without harm to the next.
"""

import ctypes
import hashlib
import importlib
import importlib.metadata
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.faults.calls import Gate, Watch
from lab.faults.disk import crowded
from lab.faults.parent import end_with_parent
from lab.faults.state import BLANK, LATER, NEWER, OLDER, fingerprints, layout
from lab.measure.files import files_in
from lab.writers.saver import StorageSaver, Victim, as_victim
from lab.writers.values import Values

JOBS, NOWHERE = 0, "/dev/null"
HOLD_SECONDS_MAX = 120.0  # until whoever asked kills this process

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Job:
    what: str  # "save", "save crowded", "load" or "load older"
    module: str
    kind: str  # the class
    way: str  # as the registry has it
    layers: int  # of the network
    directory: str
    listed: bool = False  # the files are told after each save
    copied: str = ""  # where to: the older checkpoint, or what a full disk has left
    synced: bool = False  # the older checkpoint, by us
    held: bool = False  # stays as it is after the newer save, until it is killed
    watched: bool = False  # the calls with which the newer save changes files are counted
    captured: bool = False  # says when the newer save is, and goes on
    hold_at: int = 0  # the one with this number, and all that follow, are not carried out


class Voice:
    """The pipe to who asked. What libraries print goes nowhere."""

    def __init__(self) -> None:
        self._descriptor = os.dup(1)
        nowhere = os.open(NOWHERE, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)

    def say(self, event: str, **what: Any) -> None:
        line = json.dumps({"event": event, **what}) + "\n"
        os.write(self._descriptor, line.encode())


def import_all(asked: dict[str, Any]) -> dict[str, str]:
    """Returns the versions of the packages."""
    for module in asked["modules"]:
        importlib.import_module(module)
    return {name: importlib.metadata.version(name) for name in asked["packages"]}


def listing(directory: Path) -> dict[str, str]:
    """SHA-256 of every file, so that it shows which ones a save has made or changed."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files_in(directory)
    }


def sync_file_system(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if libc.syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(descriptor)


def save(victim: Victim, job: Job, voice: Voice, gate: Gate | None = None) -> None:
    directory = Path(job.directory)
    victim.fill(OLDER)
    victim.open(directory)
    save_once(victim, job, OLDER, voice)
    if job.copied:
        shutil.copytree(directory, job.copied, symlinks=True)
    if job.synced:
        sync_file_system(directory)
    save_once(victim, job, NEWER, voice, gate=gate)
    if job.held:
        time.sleep(HOLD_SECONDS_MAX)


def save_crowded(victim: Victim, job: Job, voice: Voice) -> None:
    """The newer save meets a disk without room for it; a later one, of the same state, does not."""
    directory = Path(job.directory)
    victim.fill(OLDER)
    victim.open(directory)
    save_once(victim, job, OLDER, voice)
    sync_file_system(directory)
    with crowded(directory):
        try:
            save_once(victim, job, NEWER, voice)
        except BaseException as error:  # dcp's own is no Exception
            voice.say("refused", error=f"{type(error).__name__}: {error}")
        shutil.copytree(directory, job.copied, symlinks=True)
    save_once(victim, job, NEWER, voice, step=LATER)


def save_once(
    victim: Victim,
    job: Job,
    version: int,
    voice: Voice,
    step: int | None = None,
    gate: Gate | None = None,
) -> None:
    """Until the saver says that it is done."""
    directory = Path(job.directory)
    victim.fill(version)
    voice.say("saving", version=version)
    with gate.counting() if gate is not None else nullcontext():
        began = time.perf_counter()
        pending = victim.save(directory, step or version)
        pending.captured()
        if job.captured:
            voice.say("captured", version=version)
        pending.committed()
        seconds = time.perf_counter() - began
    files = listing(directory) if job.listed else {}
    voice.say("saved", version=version, seconds=seconds, files=files)


def load(victim: Victim, job: Job, voice: Voice) -> None:
    directory = Path(job.directory)
    victim.fill(BLANK)  # so that a load that does nothing is seen
    passed_over: list[int] = []
    if job.what == "load":
        passed_over = victim.load_newest(directory)
    else:
        victim.load_older(directory)
    voice.say("loaded", prints=fingerprints(victim.contents()), passed_over=passed_over)


WORK = {"save crowded": save_crowded, "load": load, "load older": load}


def work(job: Job, values: Values, voice: Voice, gate: Gate | None) -> None:
    try:
        if gate is not None:
            gate.close()
        kind: type[StorageSaver] = getattr(importlib.import_module(job.module), job.kind)
        victim = as_victim(kind, job.way)(layout(job.layers), values)
        try:
            if job.what == "save":
                save(victim, job, voice, gate)
            else:
                WORK[job.what](victim, job, voice)
        finally:
            victim.close()
    except BaseException as error:  # the saver's outcome, whatever it is
        voice.say("failed", error=f"{type(error).__name__}: {error}")


def bear(job: Job, values: Values, voice: Voice) -> None:
    """One process, in a session of its own, so that what it starts can be killed with it."""
    ends = socket.socketpair() if job.watched else None
    process = os.fork()
    if process == 0:
        end_with_parent()
        os.setsid()
        nowhere = os.open(NOWHERE, os.O_RDONLY)
        os.dup2(nowhere, JOBS)
        voice.say("born", process=os.getpid())
        work(job, values, voice, Gate(ends[1]) if ends else None)
        os._exit(0)
    with watching(job, process, ends, voice) if ends else nullcontext():
        _, status = os.waitpid(process, 0)
    voice.say("ended", status=os.waitstatus_to_exitcode(status))


@contextmanager
def watching(
    job: Job, process: int, ends: tuple[socket.socket, socket.socket], voice: Voice
) -> Iterator[None]:
    """Entered once a call is held, or the process has ended."""
    ours, theirs = ends
    theirs.close()
    with ours, closing(Watch(process, Path(job.directory).resolve(), job.hold_at, ours)) as watch:
        held = watch.run_until_held()
        voice.say("held" if held else "counted", calls=watch.counted, call=watch.held)
        yield


def main() -> int:
    end_with_parent()  # a process that is left would keep the disk mounted
    voice = Voice()
    with os.fdopen(JOBS, "r", closefd=False) as jobs:
        asked = json.loads(jobs.readline())
        try:
            voice.say("ready", versions=import_all(asked))
        except Exception as error:  # not installed, or broken: the reason of an empty row
            voice.say("unavailable", error=f"{type(error).__name__}: {error}")
            return 1
        values = Values(asked["seed"])
        for line in jobs:
            bear(Job(**json.loads(line)), values, voice)
    return 0


if __name__ == "__main__":
    sys.exit(main())
