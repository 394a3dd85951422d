"""The kernel kills a trainer because memory ran out: `python -m tests.faults.memory`.

The trainer and a process that takes more and more memory share a control group with a limit; the
trainer is the one to be killed. Afterwards no durable step is missing, and the next save
works. Exit status 1 otherwise.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from tests.e2e.command import announce_seed, conclude, make_parser, progress, scratch

from .trainer import Running, call, faults_of

MODULE = "tests.faults.memory"
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
    """Exists within `with`; processes in it are killed at its end."""

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

    def __exit__(self, *_: object) -> None:
        for each in self._members:
            each.kill()
            each.wait()
            if each.stdin is not None:
                each.stdin.close()
        self._path.rmdir()


def one(place: Path, draw: random.Random) -> list[str]:
    """The promises that a kill for lack of memory breaks."""
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
    """The things that this machine lacks for it; empty if it has all."""
    try:
        with ControlGroup(1 << 30):
            return ""
    except OSError as cause:
        return f"no control group with a limit of memory: {cause}"


def main(arguments: list[str]) -> int:
    parser = make_parser(MODULE, __doc__)
    parser.add_argument("--kills", type=int, default=200)
    options = parser.parse_args(arguments)
    if lacking := missing():
        return conclude(options, f"LEFT OUT: {lacking}", {"left_out": lacking}, [])
    first_seed = announce_seed(options)
    faults: list[str] = []
    for number in range(options.kills):
        seed = first_seed + number
        with scratch(options, "df-memory") as place:
            faults += [f"seed {seed}: {each}" for each in one(Path(place), random.Random(seed))]
        progress(number + 1, options.kills, "kills")
    text = f"memory: {options.kills} kills, {len(faults)} faults; seed {first_seed}"
    figures = {"seed": first_seed, "tried": {"kills": options.kills}, "faults": faults}
    return conclude(options, text, figures, faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
