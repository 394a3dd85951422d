"""The kernel kills a trainer because memory ran out: `python -m tests.faults.memory`.

The trainer and a process that takes more and more memory share a control group with a limit; the
trainer is the one to be killed. Afterwards nothing that was durable is missing, and the next save
works. Exit status 1 where not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from .trainer import Running, call, faults_of

ROOTS = (  # with memory's control, and the name of its limit: version 1, version 2
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)
# It begins when it is told to, within the limit.
TAKE = """import sys, time
sys.stdin.readline()
held = []
while True: held.append(b'x' * (1 << 20)); time.sleep({pause})
"""


class ControlGroup:
    """Made within `with`; what is in it then is killed at its end."""

    def __init__(self, limit_bytes: int) -> None:
        root, limit = next((each for each in ROOTS if each[0].exists()), ROOTS[-1])
        self._path = root / f"deepfreeze-{os.getpid()}"
        self._path.mkdir()
        try:
            (self._path / limit).write_text(str(limit_bytes))
        except OSError:
            self._path.rmdir()
            raise
        self._members: list[subprocess.Popen[str]] = []

    def add(self, process: subprocess.Popen[str], *, first_to_go: bool = False) -> None:
        self._members.append(process)
        (self._path / "cgroup.procs").write_text(str(process.pid))
        if first_to_go:
            Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")

    def start(self, command: list[str]) -> None:
        """A process that waits for a line; it gets one once it is in the group."""
        process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE)
        self.add(process)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()

    def __enter__(self) -> ControlGroup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for each in self._members:
            each.kill()
            each.wait()
            if each.stdin is not None:
                each.stdin.close()
        self._path.rmdir()


def one(place: Path, draw: random.Random) -> list[str]:
    """What a kill for want of memory breaks of the promises."""
    run = place / "run"
    take = TAKE.format(pause=draw.uniform(0.0005, 0.005))
    with (
        ControlGroup(draw.randrange(64, 160) << 20) as group,
        Running("save", run, "100000") as trainer,
    ):
        group.add(trainer.process, first_to_go=True)
        trainer.must_say("durable")
        group.start([sys.executable, "-c", take])
        trainer.wait_for_end()
        ended = trainer.said()
    found = [] if ended.exit_status == -9 else [f"the trainer ended with {ended.exit_status}"]
    found += faults_of(run, ended.newest_durable)
    again = call("save", run, "1")
    return found if again.steps("durable") else [*found, f"the next save fails: {again.lines}"]


def missing() -> str:
    """What this machine lacks for it; empty where nothing."""
    try:
        with ControlGroup(1 << 30):
            return ""
    except OSError as cause:
        return f"no control group with a limit of memory: {cause}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="memory", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if lacking := missing():
        print(json.dumps({"left_out": lacking}) if options.json else f"LEFT OUT: {lacking}")
        return 0
    faults: list[str] = []
    for number in range(options.kills):
        with tempfile.TemporaryDirectory(prefix="df-memory-") as place:
            seed = options.seed + number
            faults += [f"seed {seed}: {each}" for each in one(Path(place), random.Random(seed))]
    if options.json:
        tried = {"kills": options.kills}
        print(json.dumps({"seed": options.seed, "tried": tried, "faults": faults}))
    else:
        print(*faults, sep="\n", end="\n" if faults else "")
        print(f"memory: {options.kills} kills, {len(faults)} faults; seed {options.seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
