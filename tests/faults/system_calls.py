"""One system call of a real trainer goes wrong: `python -m tests.faults.system_calls`.

Two steps are saved into a run that has some. The n-th call of a name, for every n, gets SIGKILL
before it is carried out, an error, or for writes a count of bytes that were not written; strace
counts in each thread by itself, so an error may hit several. Afterwards every checkpoint listed is
whole and none that was called durable is missing, and the next save works. io_uring's requests are
no system calls: the modes `direct` and `buffered` are tried. Exit status 1 if something was
broken.
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.command import announce_seed, conclude, make_parser, progress, scratch

from .trainer import call, faults_of

MODULE = "tests.faults.system_calls"
CALLS = (
    "openat2", "mkdirat", "getdents64", "newfstatat", "fallocate", "ftruncate", "pwrite64",
    "fdatasync", "fsync", "renameat2", "unlinkat", "pread64", "close",
)  # fmt: skip
KINDS = ("signal=SIGKILL", "error=EIO", "error=ENOSPC")
SHORT = "retval=5"  # of a write that was not carried out: a kernel that lies
MODES = ("direct", "buffered")
STEPS_BEFORE = 3
STEPS = 2


@dataclass(frozen=True)
class Injection:
    """The fault in the n-th call of a name."""

    mode: str
    name: str
    number: int
    kind: str

    def __str__(self) -> str:
        return f"DEEPFREEZE_IO={self.mode} -e inject={self.name}:{self.kind}:when={self.number}"


def missing() -> str:
    """The program that this machine lacks for it; empty if it has all."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(
        ["strace", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False
    )
    return "" if tried.returncode == 0 else f"strace may not trace: {tried.stderr.strip()}"


def counts(mode: str, run: Path) -> dict[str, int]:
    """How often each call is made by the thread that makes most."""
    listing = run.with_name("calls")
    under = ["strace", "-f", "-qq", "-o", str(listing), "-e", f"trace={','.join(CALLS)}"]
    call("save", run, str(STEPS), under=under, environment={"DEEPFREEZE_IO": mode})
    made = Counter(re.findall(r"^(\d+ +\w+)\(", listing.read_text(), re.MULTILINE))
    by_name = [(call.split()[1], count) for call, count in made.items()]
    return {name: max((n for each, n in by_name if each == name), default=0) for name in CALLS}


def injections(place: Path) -> Iterator[Injection]:
    for mode in MODES:
        run = fresh_run(place)
        for name, count in counts(mode, run).items():
            kinds = [*KINDS, SHORT] if name == "pwrite64" else KINDS
            for number in range(1, count + 1):
                yield from (Injection(mode, name, number, kind) for kind in kinds)


def one_of_each(all_of_them: list[Injection], draw: random.Random) -> list[Injection]:
    """One injection of each mode, name and kind."""
    draw.shuffle(all_of_them)
    return list({(each.mode, each.name, each.kind): each for each in all_of_them}.values())


def fresh_run(place: Path) -> Path:
    """A run with some steps: made once, then copied."""
    template = place / "template"
    if not template.exists():
        made = call("save", template, str(STEPS_BEFORE))
        assert made.newest_durable == STEPS_BEFORE, made
    run = place / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(template, run)
    return run


def faults(injection: Injection, place: Path) -> tuple[int, list[str]]:
    """The number of calls that it hit, and the promises that it broke."""
    run = fresh_run(place)
    listing = place / "calls"
    under = ["strace", "-f", "-qq", "-o", str(listing), "-e", f"trace={injection.name}"]
    under += ["-e", f"inject={injection.name}:{injection.kind}:when={injection.number}"]
    mode = {"DEEPFREEZE_IO": injection.mode}
    try:
        trained = call("save", run, str(STEPS), under=under, environment=mode)
    except subprocess.TimeoutExpired:
        return 1, ["it hangs"]
    acknowledged = max(trained.newest_durable, STEPS_BEFORE)
    found = faults_of(run, acknowledged, may_be_bad=injection.kind == SHORT)
    again = call("save", run, "1")
    if not again.steps("durable"):
        found.append(f"the next save fails: {again.lines}")
    killed = trained.exit_status == -signal.SIGKILL
    # 127: the loader could not read a library.
    if not (killed or trained.ended_by_itself or trained.exit_status == 127):
        found.append(f"the trainer ended with {trained.exit_status}")
    return listing.read_text().count("(INJECTED)") + killed, found


def main(arguments: list[str]) -> int:
    parser = make_parser(MODULE, __doc__)
    parser.add_argument("--quick", action="store_true", help="of each kind one, drawn at random")
    options = parser.parse_args(arguments)
    if lacking := missing():
        return conclude(options, f"LEFT OUT: {lacking}", {"left_out": lacking}, [])
    seed = announce_seed(options)
    found: list[str] = []
    hits = 0
    with scratch(options, "df-calls") as place:
        tried = list(injections(Path(place)))
        if options.quick:
            tried = one_of_each(tried, random.Random(seed))
        for number, injection in enumerate(tried, 1):
            hit, broken = faults(injection, Path(place))
            hits += hit
            found += [f"{injection}: {fault}" for fault in broken]
            progress(number, len(tried), f"{injection}, {len(found)} faults")
    lives = f"{hits} failed in {len(tried)} lives"
    text = f"system calls: {lives}, {len(found)} faults; seed {seed}"
    return conclude(options, text, {"seed": seed, "hits": hits, "faults": found}, found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
