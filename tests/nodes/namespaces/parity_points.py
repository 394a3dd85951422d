"""Nodes that are lost at a chosen durable step: while they capture, commit, encode, flush or read.

A rank is killed as it passes a fail point, and its node goes with it, and another one; the job that
comes back finds a step that is no older than the newest protected one, or durable one, bit for bit.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.fail_points import fail_points
from tests.e2e.command import progress
from tests.ranks.job import HungError, Job, Say

from .parity_cases import LOST, NEVER_SECONDS, NODES, Logs, Outcome, lose, stop_all, train

if TYPE_CHECKING:
    from .cases import Site

KIND = "ddp"
STEPS = 3  # of the life that is not disturbed
ALWAYS = 100_000


@dataclass(frozen=True)
class Blow:
    """The rank that is killed as it passes a point for the `passes`-th time."""

    point: str
    passes: int
    rank: int
    has_far: bool = False  # a farther tier, which gets every second step
    returns: bool = False  # the point is passed by a job that comes back after the loss of node 0

    def armed(self, rank: int) -> str:
        return f"{self.point}=kill@{self.passes}" if rank == self.rank else ""

    def __str__(self) -> str:
        return f"rank {self.rank} at {self.point}, pass {self.passes}"


FLUSH = (
    "tier.created",
    "tier.append",
    "tier.written",
    "tier.renamed",
    "tier.settled",
    "flush.file",
    "flush.settled",
)
FLUSH_END = ("flush.checked", "flush.manifest_put")  # of the last node to bring its files
READ = "parity.pieces_read"
# Of a job that comes back, on the node that has an empty disk.
OPENED = (
    "node.written",
    "node.renamed",
    "node.synced",
    "claim.written",
    "claim.renamed",
    "claim.synced",
)
# Other fail points, by the beginning of their names, and the reason why no node is lost there.
NOT_HERE = {
    "await.": "each node has one rank here",
    "abort.": "no save is given up",
    "debris.": "a restart removes debris, and no save is under way",
    "flush.referred": "only on a tier without hard links",
    "flush.shared": "only of files that checkpoints share",
    "fork.": "another command",
    "handover.": "no agent",
    "repair.": "another command",
    "run.": "an empty disk gets the run's record with the others' history, not by these steps",
    "save.cold_linked": "only of files that checkpoints share",
    "scrub.": "another command",
    "sweep.": "only on a tier without hard links",
    "tag.": "another command",
    "tier.linked": "only of files that checkpoints share",
}
PASSES = 6  # after some steps that were protected
PASSES_OF = {"capture.piece": 60}  # many in each save
OF_RANK_0 = ("commit.parts_checked",)


def of_a_save() -> list[str]:
    """The points of a capture, a commit, parity, and the removal of an older checkpoint."""
    others = (*FLUSH, *FLUSH_END, READ, *OPENED)
    return [
        name for name in fail_points()
        if name not in others and not name.startswith(tuple(NOT_HERE))
    ]  # fmt: skip


def all_blows() -> list[Blow]:
    """Rank 0, which commits first, and one that follows it."""
    blows = [
        Blow(point, PASSES_OF.get(point, PASSES), rank)
        for point in of_a_save()
        for rank in ((0,) if point in OF_RANK_0 else (0, NODES - 1))
    ]
    blows += [Blow(point, PASSES, rank, has_far=True) for point in FLUSH for rank in (0, 1)]
    blows += [Blow(point, 2, 0, has_far=True) for point in FLUSH_END]
    blows += [Blow(READ, passes, 1, returns=True) for passes in (1, 2, 3)]
    blows += [Blow(point, 1, 0, returns=True) for point in OPENED]
    return blows


FEW = (
    Blow("parity.encoding", 4, 1),
    Blow("flush.file", 2, 0, has_far=True),
    Blow(READ, 2, 1, returns=True),
)


class Trial:
    """The lives of one job on machines that are new to it."""

    def __init__(self, here: Site, place: Path, blow: Blow, draw: random.Random) -> None:
        self._here = here
        self._blow = blow
        self._draw = draw
        place.mkdir()
        self.logs = Logs(place)

    def _start(self, armed: bool, steps: int) -> Job:
        def work(rank: int, _: Say) -> None:
            if armed:
                os.environ["DEEPFREEZE_FAIL"] = self._blow.armed(rank)
            log = self.logs.of_rank(rank)
            train(self._here, KIND, rank, steps, log, has_far=self._blow.has_far)

        return self._here.start(range(NODES), work)

    def _end(self, job: Job) -> None:
        stop_all(job)
        self.logs.hear()
        self.logs.end_life()

    def _lose(self, numbers: list[int]) -> None:
        for number in numbers:
            lose(self._here, number)

    def _live_until_blow(self) -> None:
        job = self._start(armed=True, steps=ALWAYS)
        until = time.monotonic() + NEVER_SECONDS
        while job.is_running(self._blow.rank):
            if time.monotonic() > until:
                self.logs.faults.append("the rank does not come to that point")
                break
            time.sleep(0.02)
        others = [number for number in range(NODES) if number != self._blow.rank]
        also = self._draw.sample(others, 0 if self._blow.returns else LOST - 1)
        for number in also:
            job.signal(number, signal.SIGKILL)
        self._end(job)
        if self.logs.floor() == 0:
            self.logs.faults.append("nothing was safe when the nodes were lost")
        self._lose([self._blow.rank, *also])

    def _live_and_lose_one(self) -> None:
        """So that the next life has an empty disk, and reads files through the code."""
        job = self._start(armed=False, steps=ALWAYS)
        until = time.monotonic() + NEVER_SECONDS
        while min(self.logs.protected.values()) < 1:
            if time.monotonic() > until:
                self.logs.faults.append("not all ranks have a protected step")
                break
            time.sleep(0.02)
            self.logs.hear()
        self._end(job)
        self._lose([0])

    def run(self) -> None:
        if self._blow.returns:
            self._live_and_lose_one()
        self._live_until_blow()
        job = self._start(armed=False, steps=STEPS)
        ended = job.wait(NEVER_SECONDS)
        self.logs.faults += [f"the last life: {one}" for one in ended if one.status != 0]
        self.logs.hear()


def points(place: Path, blows: list[Blow]) -> Outcome:
    from .cases import site

    seed = random.SystemRandom().randrange(1 << 32)
    draw = random.Random(seed)
    faults: list[str] = []
    rebuilt = 0
    with site(place, NODES) as here:
        for number, blow in enumerate(blows):
            progress(number, len(blows), "blows")
            trial = Trial(here, place / f"trial-{number}", blow, draw)
            try:
                trial.run()
            except HungError as error:
                trial.logs.faults.append(str(error))
            faults += [f"seed {seed}, {blow}: {fault}" for fault in trial.logs.faults]
            rebuilt += trial.logs.rebuilt
            here.renew()
            here.forget_far()
    if rebuilt == 0:
        faults.append(f"seed {seed}: no file came from parity")
    told = f"{len(blows)} blows, {rebuilt} files from parity"
    return Outcome(faults, told)


def nodes_lost_at_some_points(place: Path) -> Outcome:
    return points(place, list(FEW))


def nodes_lost_at_all_points(place: Path) -> Outcome:
    """Some minutes."""
    return points(place, all_blows())
