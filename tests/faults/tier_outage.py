"""A farther tier is away while a training saves at each step: `python -m tests.faults.tier_outage`.

Its disk is unmounted, and for shorter times moved away, replaced by a file, read-only, full; then
it comes back. Meanwhile no save fails, one warning is logged, and the nearer tier holds no more
checkpoints than the rules of both name. Afterwards the newest goes first, and all that waited
arrives. The training pauses once the tier is back, until three checkpoints have arrived: so their
order can be told on a slow machine, too. Exit status 1 otherwise. The times of save() are printed,
beside those of a control: the same training at the same time, whose tier is never away.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from tests.e2e.command import conclude, make_parser, scratch

from .block_disk import NotHereError, have_mounts_of_our_own
from .far_place import WAYS, FarPlace
from .saving_each_step import HOLD, KEPT_FAR, KEPT_NEAR
from .trainer import EndedError

MODULE = "tests.faults.tier_outage"
SHORTER = 20  # outages of the other ways take this part of the first one's time
QUIET = 10  # so does the time without an outage, before and after
SECONDS_MAX = 120.0  # for each event that must happen at all
# The longest save(), in any state of its tiers: a few milliseconds, and a busy machine.
SAVE_SECONDS_MAX = 1.0
# Beside those that rules name: the one that is being saved, the one that is being deleted.
ATTEMPTS_MORE = 3
# A training that goes on pushes the others out of the tier's rule meanwhile.
ARRIVED_LEAST = 2
CLOCK_NS = 20_000_000  # by which the time of a file may be behind
# Of copies, and of deletions.
WARNINGS = ("checkpoints wait to be copied to", "old checkpoints stay on")
MIB = 1 << 20

Line = dict[str, Any]  # the trainer's report of a step


class Trainer:
    """saving_each_step in a process of its own; its lines are kept by a thread."""

    def __init__(self, near: Path, far: Path, errors: IO[bytes] | int) -> None:
        command = [sys.executable, "-m", "tests.faults.saving_each_step", str(near), str(far)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        self.lines: list[Line] = []
        self.ended: Line | None = None
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            if "ended" in line:
                self.ended = line
            else:
                self.lines.append(line)

    def wait_until(self, happened: Callable[[Line], bool], what: str) -> None:
        """Until it holds for the newest line. TimeoutError if that does not come."""
        until = time.monotonic() + SECONDS_MAX
        while not (self.lines and happened(self.lines[-1])):
            if (status := self._process.poll()) is not None:
                raise EndedError(f"{what}: the trainer ended with {status}; {self.lines[-1:]}")
            if time.monotonic() > until:
                raise TimeoutError(f"{what}: not after {SECONDS_MAX:.0f} s; {self.lines[-1:]}")
            time.sleep(0.01)

    def take(self, seconds: float, steps: int = 10) -> list[Line]:
        """The lines of the next seconds, and at least so many steps."""
        first = len(self.lines)
        time.sleep(seconds)
        self.wait_until(lambda _: len(self.lines) >= first + steps, f"{steps} steps")
        return self.lines[first:]

    def hold(self) -> None:
        """It makes no steps until a few checkpoints have arrived at the tier."""
        assert self._process.stdin is not None
        self._process.stdin.write(HOLD.decode())
        self._process.stdin.flush()

    def end(self) -> Line:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=SECONDS_MAX)
        self._listener.join()
        if self.ended is None:
            raise EndedError(f"the trainer ended with {self._process.returncode}")
        return self.ended

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()


@dataclass
class Outage:
    """One absence of the tier, and its end."""

    way: str
    seconds: float = 0.0
    during: list[Line] = field(default_factory=list)
    order: list[int] = field(default_factory=list)  # steps that waited, as they were committed
    overtaken: int = 0  # steps saved before the first of them was committed, and newer than it
    first_seconds: float = 0.0  # from its return to the first commit, and to the last of those
    caught_up_seconds: float = 0.0
    warnings: int = 0
    warnings_of_deletions: int = 0  # one if it went away between a commit and the deletion after it

    def figures(self) -> dict[str, Any]:
        return {**vars(self), "during": len(self.during)}


@dataclass
class Found:
    """All outages of one training."""

    before: list[Line] = field(default_factory=list)
    after: list[Line] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    control: list[Line] = field(default_factory=list)
    ended: Line = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def go_through(
    trainer: Trainer, far: FarPlace, way: str, seconds: float, warned: Callable[[str], int]
) -> Outage:
    leave, come_back = WAYS[way]
    outage = Outage(way)
    before = [warned(each) for each in WARNINGS]
    failures = trainer.lines[-1]["failures"]
    began, first = time.monotonic(), len(trainer.lines)
    leave(far)
    trainer.wait_until(lambda line: is_away(line, failures, far), f"it fails: {way}")
    trainer.take(max(0.0, seconds - (time.monotonic() - began)))
    outage.seconds = time.monotonic() - began
    outage.during = trainer.lines[first:]
    trainer.hold()
    returned_ns = time.time_ns() - CLOCK_NS
    come_back(far)
    commits = watch_the_return(trainer, far, returned_ns)
    note_order(outage, trainer.lines, commits, returned_ns)
    waiting, kept = [warned(each) - old for each, old in zip(WARNINGS, before, strict=True)]
    outage.warnings, outage.warnings_of_deletions = waiting, kept
    return outage


def is_away(line: Line, failures: int, far: FarPlace) -> bool:
    """A full tier tidies itself once: that room has to be taken, too."""
    far.stay_full()
    return bool(line["failures"] > failures)


def watch_the_return(trainer: Trainer, far: FarPlace, returned_ns: int) -> dict[int, int]:
    """The commits since it is back, until nothing old waits any more."""
    commits: dict[int, int] = {}

    def has_caught_up(line: Line) -> bool:
        commits.update({s: t for s, t in far.commits().items() if t > returned_ns})
        return bool(commits) and line["error"] is None and line["waiting"] <= 1

    trainer.wait_until(has_caught_up, "it catches up")
    return commits


def note_order(
    outage: Outage, lines: Sequence[Line], commits: dict[int, int], returned_ns: int
) -> None:
    """Steps that were saved before the first commit have waited. Those newer than the first one
    came while it was being copied."""
    first_step, first_ns = min(commits.items(), key=lambda each: (each[1], -each[0]))
    saved = {line["step"]: line["saved_ns"] for line in lines}
    waited = [step for step in commits if step in saved and saved[step] < first_ns]
    old = [step for step in waited if step <= first_step]
    outage.overtaken = len(waited) - len(old)
    outage.order = sorted(old, key=lambda step: (commits[step], -step))
    outage.first_seconds = (first_ns - returned_ns) / 1e9
    outage.caught_up_seconds = (commits[outage.order[-1]] - returned_ns) / 1e9


def faults_of(outage: Outage) -> Iterator[str]:
    bound = KEPT_NEAR + KEPT_FAR + ATTEMPTS_MORE
    if (attempts := most("attempts", outage)) > bound:
        yield f"{attempts} checkpoints on the nearer tier, not {bound}"
    if outage.order != sorted(outage.order, reverse=True):
        yield f"not the newest first: {outage.order}"
    if len(outage.order) < ARRIVED_LEAST:
        yield f"of those that waited only {outage.order} arrived"
    if outage.warnings != 1 or outage.warnings_of_deletions > 1:
        yield f"{outage.warnings} warnings, {outage.warnings_of_deletions} of deletions"


def faults_at_end(found: Found) -> Iterator[str]:
    lines = [*found.before, *(line for one in found.outages for line in one.during), *found.after]
    if (longest := max(line["stall"] for line in lines)) > SAVE_SECONDS_MAX:
        yield f"a save() took {longest:.3f} s"
    ended = found.ended
    if ended["failed"]:
        yield f"{ended['failed']} saves failed"
    if ended["committed"] + ended["left_out"] < ended["ended"]:
        yield f"neither committed nor counted as left out: {ended}"


def prove(seconds: float, place: Path) -> Found:
    """NotHereError if this machine has no such disk."""
    found = Found()
    log = place / "log"
    have_mounts_of_our_own()
    with FarPlace(place / "disk") as far, FarPlace(place / "other") as steady:
        with (
            log.open("wb") as errors,
            Trainer(place / "near", far.path, errors) as trainer,
            Trainer(place / "control", steady.path, subprocess.DEVNULL) as control,
        ):
            control.wait_until(lambda line: bool(line["committed"] > KEPT_FAR), "it begins")
            trainer.wait_until(lambda line: bool(line["committed"] > KEPT_FAR), "it begins")
            found.before = trainer.take(seconds / QUIET)
            for number, way in enumerate(WAYS):
                lasts = seconds / SHORTER if number else seconds
                outage = go_through(trainer, far, way, lasts, partial(warnings_in, log))
                found.outages.append(outage)
                found.faults += [f"{way}: {fault}" for fault in faults_of(outage)]
            found.after = trainer.take(seconds / QUIET)
            found.ended = trainer.end()
            found.control = list(control.lines)
        found.faults += faults_at_end(found)
        found.faults += different_copies(place / "near", far)
        if found.faults:
            print(log.read_text()[-4000:], file=sys.stderr)
    return found


def warnings_in(log: Path, text: str) -> int:
    return log.read_text().count(f"deepfreeze: warning: {text}")


def different_copies(near: Path, far: FarPlace) -> list[str]:
    """The newest checkpoint is the same on both, byte for byte."""
    newest = max(near.glob("step-*"))
    wrong = [
        file.name
        for file in newest.iterdir()
        if (far.path / newest.name / file.name).read_bytes() != file.read_bytes()
    ]
    return [f"the newest differs on the tier: {wrong}"] if wrong else []


def quantile(stalls: Sequence[float], share: float) -> float:
    ordered = sorted(stalls)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def times_of(name: str, lines: Sequence[Line], control: Sequence[Line]) -> str:
    """Those of the control at the same time stand in brackets."""
    begin, end = lines[0]["saved_ns"], lines[-1]["saved_ns"]
    normal = [line["stall"] for line in control if begin <= line["saved_ns"] <= end] or [0.0]
    stalls = [line["stall"] for line in lines]
    above = sum(stall > quantile(normal, 0.99) for stall in stalls) / len(stalls)
    both = [
        f"{what} {1e3 * quantile(stalls, share):.2f} ({1e3 * quantile(normal, share):.2f}) ms"
        for what, share in (("median", 0.5), ("p99", 0.99), ("longest", 1.0))
    ]
    return (
        f"outage: save() {name}: {len(stalls)} calls, {', '.join(both)}, "
        f"{100 * above:.1f} % above the p99 of the control"
    )


def most(what: str, outage: Outage) -> int:
    return max(int(line[what]) for line in outage.during)


def report_of(found: Found) -> str:
    lines = [times_of("before", found.before, found.control)]
    for one in found.outages:
        lines.append(
            times_of(f"while {one.way} for {one.seconds:.0f} s", one.during, found.control)
        )
        lines.append(
            f"outage: {one.way}: at most {most('attempts', one)} checkpoints "
            f"({most('bytes', one) / MIB:.0f} MiB) near, "
            f"{one.warnings} warning; back, {one.first_seconds:.1f} s to the first commit, "
            f"{one.caught_up_seconds:.1f} s to the last of {len(one.order)} that waited, "
            "the newest first"
        )
    lines.append(times_of("after", found.after, found.control))
    return "\n".join(lines)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="of the first outage")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if os.geteuid() != 0:
        return conclude(options, "LEFT OUT: it takes root", {"left_out": "it takes root"}, [])
    with scratch(options, "df-outage") as place:
        try:
            found = prove(options.seconds, Path(place))
        except NotHereError as cause:
            return conclude(options, f"LEFT OUT: {cause}", {"left_out": str(cause)}, [])
    figures = {
        "outages": [one.figures() for one in found.outages],
        "ended": found.ended,
        "faults": found.faults,
    }
    return conclude(options, report_of(found), figures, found.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
