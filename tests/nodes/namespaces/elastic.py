"""torchrun on three machines, as docs/nodes.md says: a process dies, then a machine with its disk.

After the first the same machines go on, after the second the two that are left; torchrun starts the
program again, and deepfreeze restores it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .parity_cases import Outcome

if TYPE_CHECKING:
    from .cases import Site

ROOT = Path(__file__).resolve().parents[3]
MACHINES = 3
STEPS = 100_000  # nobody waits for the last one
WAIT_SECONDS = 240.0  # torchrun may need several tries, whose meshes fail
PORT = 29_400


def launch(here: Site, number: int, logs: Path) -> subprocess.Popen[bytes]:
    machine = here.machines[number]
    options = ["--nnodes", "2:3", "--nproc-per-node", "1", "--max-restarts", "20"]
    options += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{here.machines[0].address}:{PORT}"]
    options += ["--rdzv-id", "job", "--local-addr", machine.address]
    options += ["--rdzv-conf", "last_call_timeout=3,join_timeout=60"]
    program = [str(Path(__file__).with_name("elastic_train.py")), str(here.run), str(logs)]
    environment = os.environ | {
        "GLOO_SOCKET_IFNAME": machine.interface,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    with (logs / f"torchrun-{number}.log").open("wb") as log:
        return machine.popen(
            [sys.executable, "-m", "torch.distributed.run", *options, *program, str(STEPS)],
            env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


class Notes:
    """The lines of all processes, by machine."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs

    def lines(self, event: str) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self._logs.glob("node*.jsonl")):
            text = path.read_text()
            whole = text[: text.rfind("\n") + 1]
            found += [json.loads(line) for line in whole.splitlines()]
        return [line for line in found if line["event"] == event]

    def newest(self, world: int) -> int:
        steps = [line["step"] for line in self.lines("protected") if line["world"] == world]
        return max(steps, default=0)

    def await_that(self, what: str, condition: Callable[[], bool]) -> list[str]:
        until = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > until:
                return [f"{what}: not after {WAIT_SECONDS:g} s: {self.tails()}"]
            time.sleep(0.1)
        return []

    def tails(self) -> dict[str, str]:
        logs = sorted(self._logs.glob("torchrun-*.log"))
        return {path.name: path.read_text(errors="replace")[-2000:] for path in logs}


def restores_are_right(notes: Notes) -> list[str]:
    """Each one, whether the job went on after it or not."""
    begun = {(line["step"], line["rank"], line["digest"]) for line in notes.lines("begun")}
    protected = notes.lines("protected")
    faults = []
    for line in notes.lines("restored"):
        floor = max((one["step"] for one in protected if one["time"] < line["time"]), default=0)
        if line["step"] < floor:
            faults.append(f"step {floor} was protected before {line}")
        if line["step"] and (line["step"], line["rank"], line["digest"]) not in begun:
            faults.append(f"other bytes came back: {line}")
    return faults


def end(here: Site, launchers: list[subprocess.Popen[bytes]]) -> None:
    """Launchers first: they start workers again, and each worker has a session of its own."""
    for one in launchers:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.wait()
    for machine in here.machines:
        machine.kill_all()


def name_all(here: Site, place: Path) -> None:
    """torchrun wants to find its own machine by name."""
    lines = ["127.0.0.1 localhost"]
    lines += [f"{machine.address} {machine.host}" for machine in here.machines]
    (place / "hosts").write_text("\n".join(lines) + "\n")
    for machine in here.machines:
        machine.know_hosts(place / "hosts")


def two_failures(
    here: Site, notes: Notes, logs: Path, launchers: list[subprocess.Popen[bytes]]
) -> list[str]:
    if faults := notes.await_that("three machines save", lambda: notes.newest(3) >= 2):
        return faults
    first = notes.newest(3)
    (logs / "strike").touch()
    if faults := notes.await_that("after a dead process", lambda: len(again(notes, 3)) >= 3):
        return faults
    if faults := notes.await_that("they go on", lambda: notes.newest(3) > first + 2):
        return faults
    second = notes.newest(3)
    os.killpg(launchers[2].pid, signal.SIGKILL)
    here.machines[2].kill_all()
    if faults := notes.await_that("two machines save", lambda: notes.newest(2) > second):
        return faults
    return restores_are_right(notes)


def torchrun_starts_it_again(place: Path) -> Outcome:
    from .cases import site

    logs = place / "logs"
    logs.mkdir()
    notes = Notes(logs)
    with site(place, MACHINES) as here:
        name_all(here, place)
        launchers = [launch(here, number, logs) for number in range(MACHINES)]
        try:
            faults = two_failures(here, notes, logs, launchers)
        finally:
            end(here, launchers)
    restored = [(line["world"], line["step"]) for line in notes.lines("restored")]
    parity = sum(line["from_parity"] for line in notes.lines("restored"))
    if not faults and parity == 0:
        faults.append("no file came from parity")
    return Outcome(faults, f"restored (machines, step) {restored}, {parity} files from parity")


def again(notes: Notes, world: int) -> list[int]:
    """The steps that restarts on so many machines have restored."""
    return [
        line["step"] for line in notes.lines("restored") if line["world"] == world and line["step"]
    ]
