"""Kills: `python -m tests.chaos.kills --kills 1000 [--seed S] [--json]`.

A trainer is killed with SIGKILL at every fail point, at its first and at a later pass, on every
way that leads there (a new run, one that a killed process left, a failing disk, a damaged run
file; and the program's gc, doctor and scrub), and at random moments. A new process restores, and
continues; a third one restores that. The restored state must be one step's bytes, compared by
hash: those of the newest acknowledged step, or of a newer one that was begun.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import errno
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch._dynamo  # noqa: F401  an optimizer's first use imports it: once, not in every child

from tests.e2e.command import announce_seed, conclude, make_parser, progress

from .children import Event, ViolationError, compile_once, open_log
from .fail_points import fail_points_of_one
from .oracle import Oracle
from .state import Point, World
from .ways import KEEP, STEPS, WAYS, Case, Way, ways_of
from .workplace import workplace

MODULE = "tests.chaos.kills"
STEPS_AT_MOST = 3 * STEPS  # before a random moment
STEPS_AFTER = 2
LATER_PASS_MAX = 4
WIDE_CHANCE = 0.15
IO_MODES = ("", "direct", "buffered")  # "": as found out
URING_ONLY = ("part.complete",)
LIES = ("byte", "early")  # negative controls: faults that the trainer is given
RANDOM_MOMENTS_QUICK = 4
_IO_URING_SETUP = 425  # the system call's number, everywhere


def has_uring() -> bool:
    """The kernel knows the call, and it is the empty request that it refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(_IO_URING_SETUP, 0, None)
    return ctypes.get_errno() in (errno.EFAULT, errno.EINVAL)


@dataclass(frozen=True)
class Kill:
    """One trial: the place where a process is to die."""

    way: str
    point: str = ""  # "": at a random moment
    at_pass: int = 1

    def __str__(self) -> str:
        where = f"{self.point} at pass {self.at_pass}" if self.point else "a random moment"
        return f"{self.way}: killed at {where}"


@dataclass
class Tally:
    """The results of all trials."""

    seed: int
    kills: int = 0
    at_points: Counter[str] = field(default_factory=Counter)
    by_way: Counter[str] = field(default_factory=Counter)
    not_passed_again: int = 0  # the later pass never came: the process ended by itself
    ended_before: int = 0  # before its random moment
    restored: Counter[str] = field(default_factory=Counter)
    checkpoints: int = 0  # acknowledged in all
    linked: int = 0  # found after a kill, whole, with a file that an earlier one wrote
    left_out: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def die(case: Case, kill: Kill, draw: random.Random, seconds: float) -> bool:
    """Whether it was killed."""
    way = WAYS[kill.way]
    if not kill.point:
        killed, _ = case.live(kill_after=draw.uniform(0, seconds), steps=STEPS_AT_MOST)
        return killed
    # The points of links have no pass before.
    before = 0 if kill.point.startswith("save.") else way.saves_before
    armed = f"{kill.point}=kill@{before + kill.at_pass}"
    if way.program:
        return case.program(way.program, armed) == -signal.SIGKILL
    steps = way.saves_before + STEPS
    killed, _ = case.live(steps=steps, fail_points=";".join(filter(None, (way.also, armed))))
    return killed


def check_after(case: Case, kill: Kill, tally: Tally) -> None:
    """The dead one's successors."""
    tally.linked += case.check_whole()
    if WAYS[kill.way].program:
        case.check_look()
        finish_program(case, WAYS[kill.way])
    floor = case.oracle.floor()
    _, events = case.live(steps=STEPS_AFTER)
    point = next(each for each in events if each["kind"] == "restored")["point"]
    tally.restored[kind_of_restore(None if point is None else Point(*point), floor)] += 1
    check_all_durable(case, events)
    case.check_whole()
    newest = case.oracle.floor()
    _, events = case.live(steps=1)
    if events[0]["point"] is None or Point(*events[0]["point"]) != newest:
        raise ViolationError(f"the third process restored {events[0]['point']}, not {newest}")


def finish_program(case: Case, way: Way) -> None:
    """An interrupted program can be run again, to its end."""
    status = case.program(way.program)
    if status != 0:
        raise ViolationError(f"{way.program} after it was killed: exit status {status}")
    if way.prefixes == ("repair.",):
        case.oracle.spoiled.clear()
    case.check_whole()


def kind_of_restore(point: Point | None, floor: Point | None) -> str:
    if point is None:
        return "nothing, nothing was acknowledged"
    return "the newest acknowledged" if point == floor else "a newer one that was begun"


def check_all_durable(case: Case, events: list[Event]) -> None:
    """A life without a fault: no file of a dead process keeps it from saving."""
    kinds = Counter(each["kind"] for each in events)
    if kinds["durable"] != STEPS_AFTER or not kinds["ended"]:
        raise ViolationError(f"life {case.lives} could not go on: {events}")


class Trials:
    """Carries out the trials, each on a run of its own; the life before a kill is made once."""

    def __init__(self, seed: int, directory: Path, lie: str) -> None:
        self.tally = Tally(seed)
        self.lie = lie
        self._draw = random.Random(seed)
        self._directory = directory
        self._number = 0
        self._prepared: dict[str, Case] = {}
        self._log = open_log(directory)
        compile_once(directory)
        self._usual_seconds = self._time_a_life()

    def _time_a_life(self) -> float:
        with self._case("new run") as case:
            case.live(steps=1)  # has the package compiled
            began = time.monotonic()
            case.live(steps=STEPS_AT_MOST)
            return time.monotonic() - began

    @contextmanager
    def _case(self, way: str) -> Iterator[Case]:
        """A copy of the prepared case; its directory is kept if it ends in a violation."""
        if way not in self._prepared:
            self._prepared[way] = self._prepare(way)
        self._number += 1
        before = self._prepared[way]
        case = copy.deepcopy(before) if before.lives else self._new_case("")
        case.run = self._directory / f"run-{self._number:05}"
        case.io = self._draw.choice(IO_MODES)
        if before.lives:
            shutil.copytree(before.run, case.run)  # with the times of files
        yield case
        shutil.rmtree(case.run)
        self.tally.checkpoints += len(case.oracle.durable)

    def _prepare(self, way: str) -> Case:
        """The life before the kill, made once."""
        case = self._new_case(way)
        WAYS[way].prepare(case)
        return case

    def _new_case(self, name: str) -> Case:
        size = "wide" if self._draw.random() < WIDE_CHANCE else "small"
        world = World(self._draw.randrange(1 << 32), size)
        run = self._directory / name.replace(" ", "-")
        return Case(run, Oracle(world, KEEP), world, self._log, "", self.lie)

    def carry_out(self, kill: Kill) -> bool:
        """Whether a process was killed."""
        try:
            with self._case(kill.way) as case:
                if kill.point in URING_ONLY:
                    case.io = ""
                if not die(case, kill, self._draw, self._usual_seconds):
                    return False
                check_after(case, kill, self.tally)
        except ViolationError as violation:
            run = self._directory / f"run-{self._number:05}"
            self.tally.faults.append(f"{kill}: {violation}; see {run}")
        self.tally.kills += 1
        self.tally.by_way[kill.way] += 1
        self.tally.at_points[kill.point or "a random moment"] += 1
        return True

    def at_point(self, point: str, ways: list[str], passes: list[int]) -> None:
        """Each way at each pass; the first pass must come."""
        if not ways:
            self.tally.faults.append(f"no way leads to the fail point {point}")
        for way in ways:
            for at_pass in passes:
                killed = self.carry_out(Kill(way, point, at_pass))
                if not killed and at_pass == 1:
                    self._never_reached(way, point)
                self.tally.not_passed_again += not killed and at_pass > 1

    def _never_reached(self, way: str, point: str) -> None:
        if point in URING_ONLY and not has_uring():
            self.tally.left_out.append(f"{point}: io_uring is not to be had here")
        else:
            self.tally.faults.append(f"{way}: {point} was never reached")

    def at_random_moment(self) -> None:
        way = self._draw.choice(["new run", "after a kill", "sharing files"])
        self.tally.ended_before += not self.carry_out(Kill(way))

    def later_pass(self) -> int:
        return self._draw.randrange(2, LATER_PASS_MAX + 1)

    def one_way(self, point: str) -> list[str]:
        ways = ways_of(point)
        return [self._draw.choice(ways)] if ways else []


def prove(trials: Trials, kills: int) -> Tally:
    """All fail points first, then random moments until there were so many kills."""
    for point in fail_points_of_one():
        trials.at_point(point, ways_of(point), [1, trials.later_pass()])
        progress(trials.tally.kills, kills, "kills")
    while trials.tally.kills < kills:
        trials.at_random_moment()
        progress(trials.tally.kills, kills, "kills")
    return trials.tally


def prove_quickly(trials: Trials) -> Tally:
    """Each fail point once, on one way; some random moments. A negative control ends early."""
    points = fail_points_of_one()
    for point in points:
        trials.at_point(point, trials.one_way(point), [1])
        if trials.lie and trials.tally.faults:
            return trials.tally
    for _ in range(RANDOM_MOMENTS_QUICK):
        trials.at_random_moment()
    return trials.tally


def describe(tally: Tally) -> str:
    ways = ", ".join(f"{count} {way}" for way, count in tally.by_way.items())
    restored = ", ".join(f"{count} {what}" for what, count in tally.restored.items())
    points = len(tally.at_points.keys() - {"a random moment"})
    return "\n".join(
        [
            f"kills           {tally.kills}: {ways}",
            f"fail points     {points}, {tally.at_points['a random moment']} random moments",
            f"restored        {restored}",
            f"checkpoints     {tally.checkpoints} acknowledged, none lost, none mixed"
            if not tally.faults
            else f"faults          {len(tally.faults)}",
            f"linked          {tally.linked} checkpoints with an earlier one's file, whole",
            f"later passes    {tally.not_passed_again} did not come",
            *(f"LEFT OUT: {each}" for each in tally.left_out),
        ]
    )


def main(arguments: list[str]) -> int:
    parser = make_parser(MODULE, __doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="each fail point once, no more")
    parser.add_argument("--lie", choices=LIES, default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    seed = announce_seed(options)
    with workplace(options.directory, "kills") as place:
        trials = Trials(seed, place.path, options.lie)
        tally = prove_quickly(trials) if options.quick else prove(trials, options.kills)
        place.keep = bool(tally.faults)
    return conclude(options, describe(tally), vars(tally), tally.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
