"""The ways to a fail point: the life before it, the process that dies there, and its run."""

from __future__ import annotations

import functools
import os
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.demo.program import find_program

from .children import DEADLINE_SECONDS, Event, ViolationError, run_child
from .on_disk import damage, held
from .oracle import Oracle
from .state import Point, World
from .trainer import Plan, look, train

KEEP = 2
STEPS = 4  # of a trainer that is to be killed
SAVES_TO_SHARE = 5  # those of a process that link no file of an earlier one
HOUR_SECONDS = 3600


@dataclass
class Case:
    """One run directory, its truth, and the lives that it has seen."""

    run: Path
    oracle: Oracle
    world: World
    log: int
    io: str
    lie: str
    lives: int = 0

    def live(self, kill_after: float | None = None, **more: Any) -> tuple[bool, list[Event]]:
        """Runs one more trainer to its end: whether it was killed, and its output."""
        self.lives += 1
        usual = {"steps": STEPS, "keep": KEEP, "io": self.io, "lie": self.lie}
        plan = Plan(self.run, self.world, self.lives, **{**usual, **more})
        work = functools.partial(train, plan)
        child, events = run_child(f"life {self.lives}", work, self.log, kill_after)
        if child.status != 0 and not child.killed:
            raise ViolationError(f"life {self.lives} ended with status {child.status}")
        for event in events:
            self.oracle.heed(self.lives, event)
        return child.killed, events

    def newest_file(self, pattern: str) -> Path:
        (found,) = (self.run / held(self.run)[0].directory).glob(pattern)
        return found

    def check_whole(self) -> int:
        """Every checkpoint that stands on disk, and that those are there that must be; how many
        have a linked file."""
        found = held(self.run, self.oracle.spoiled)
        self.oracle.check_held(found)
        for each in found:
            self.oracle.check_bytes(each.point, each.digests(self.run), each.directory)
        return sum(each.has_linked_file(self.run) for each in found)

    def check_look(self) -> None:
        """Checks a reader's load, which changes nothing."""
        floor = self.oracle.floor()
        child, events = run_child("look", functools.partial(look, self.run), self.log)
        if child.status != 0:
            raise ViolationError(f"the newest can't be loaded: {child.status}")
        (loaded,) = events
        point = Point(*loaded["point"])
        self.oracle.check_floor(point, floor, "load")
        self.oracle.check_bytes(point, loaded["digests"], "load")

    def program(self, words: tuple[str, ...], fail_points: str = "") -> int:
        """Runs the program; its exit status. Its output goes to the log."""
        more = [word.format(run=self.run) for word in words[1:]]
        verb, at, checkpoint = words[0].partition("@")
        command = [find_program(), verb, f"{self.run}{at}{checkpoint}", *more]
        environment = {**os.environ, "DEEPFREEZE_FAIL": fail_points}
        done = subprocess.run(
            command, env=environment, check=False, stdout=self.log, stderr=self.log,
            timeout=DEADLINE_SECONDS,
        )  # fmt: skip
        return done.returncode


def nothing(_: Case) -> None:
    """A run that does not exist yet."""


def three_steps(case: Case) -> None:
    case.live(steps=3)


def shared_steps(case: Case) -> None:
    """The last two have a file of an earlier one, so that a tier can link it."""
    case.live(steps=6, keep=2 * STEPS)


def all_kept(case: Case) -> None:
    case.live(keep=2 * STEPS)


def died_sealed(case: Case) -> None:
    """Leaves an attempt that is sealed and undecided."""
    killed, _ = case.live(fail_points="commit.seal_synced=kill@4")
    assert killed


def fenced_debris(case: Case) -> None:
    """Three died: in a save, before a claim was renamed, and before it came to abort the save."""
    died_sealed(case)
    for point in ("claim.written", "claim.synced"):
        killed, _ = case.live(fail_points=f"{point}=kill")
        assert killed
    old = time.time() - 2 * HOUR_SECONDS
    (temporary,) = case.run.glob("*.tmp")
    os.utime(temporary, (old, old))


def damaged_run_file(case: Case) -> None:
    three_steps(case)
    (case.run / "deepfreeze.json").write_text("{}")


def damaged_manifest(case: Case) -> None:
    three_steps(case)
    newest = held(case.run)[0]
    damage(case.newest_file("manifest.json"), "flip", random.Random(7))
    case.oracle.spoiled[newest.directory] = newest.point


@dataclass(frozen=True)
class Way:
    """How a process comes past fail points whose names begin so."""

    prepare: Callable[[Case], None]
    prefixes: tuple[str, ...]
    also: str = ""  # the further fault in the trainer that dies
    program: tuple[str, ...] = ()  # it dies instead of a trainer
    saves_before: int = 0  # of the trainer, before it shares files; its later passes are meant


TRAINING = ("claim.", "part.", "commit.", "remove.", "capture.", "handover.")
WAYS = {
    "new run": Way(nothing, ("run.", "node.", *TRAINING)),
    "after a kill": Way(died_sealed, ("abort.", *TRAINING)),
    "sharing files": Way(
        nothing, ("save.", "part.", "commit.", "remove."), saves_before=SAVES_TO_SHARE
    ),
    "failing disk": Way(
        three_steps, ("abort.", "remove."), also="commit.parts_checked=error:EIO@2"
    ),
    "damaged run file": Way(damaged_run_file, ("run.",)),
    "gc": Way(all_kept, ("remove.",), program=("gc", "--keep-last", str(KEEP))),
    "debris": Way(
        fenced_debris,
        # No manifest is removed: that of an aborted attempt stays to the end.
        ("abort.", "remove.manifest_synced", "remove.files", "remove.directory", "debris."),
        program=("doctor", "--delete-debris"),
    ),
    "repair": Way(damaged_manifest, ("repair.",), program=("doctor", "--repair")),
    "scrub": Way(three_steps, ("scrub.",), program=("scrub",)),
    "flush": Way(shared_steps, ("tier.", "flush."), program=("flush", "{run}-far")),
    "tag": Way(three_steps, ("tag.",), program=("tag@latest", "kept=yes")),
    "fork": Way(three_steps, ("fork.",), program=("fork", "{run}-fork")),
}


def ways_of(point: str) -> list[str]:
    return [name for name, way in WAYS.items() if point.startswith(way.prefixes)]
