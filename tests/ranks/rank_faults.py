"""Ranks killed or stopped anywhere: `python -m tests.ranks.rank_faults --disturbances 500`.

In each trial one rank of three is killed, or stopped for longer than any deadline, at a durable
step or at a random time. The others must end in time; acknowledged steps must be
there, whole, of one step; and the next job must resume from it and save.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from tests.chaos.fail_points import fail_points_of_ranks
from tests.e2e.command import announce_seed, conclude, make_parser, progress, scratch

from .job import HungError, Job, RankEnded, Say, Work

WORLD = 3
STEPS = 5
RANK_SECONDS = 2.0  # after which a rank that does not answer, or write, is an error to the others
END_SECONDS = 30.0  # after which one that still runs hangs
ELEMENTS = 400_000

# Each a durable step, or beside one. Which of them a rank passes depends on which rank it is.
POINTS = (
    "commit.directory_made",
    "commit.directory_synced",
    "part.created",
    "part.data_written",
    "part.data_synced",
    "part.header_written",
    "part.header_synced",
    "commit.sealed",
    "commit.seal_synced",
    "commit.parts_checked",
    "commit.manifest_written",
    "commit.manifest_renamed",
    "commit.manifest_synced",
    "await.published",
    "await.synced",
)


@dataclass(frozen=True)
class Fault:
    """The fault, its rank and its time."""

    rank: int
    stops: bool  # else it is killed
    point: str  # "" is at `seconds`
    passes: int
    seconds: float

    def armed(self, rank: int) -> str:
        """For the fail points of a rank: nothing, a kill, or a wait in which it is stopped."""
        if rank != self.rank or not self.point:
            return ""
        return f"{self.point}={'sleep:1500' if self.stops else 'kill'}@{self.passes}"


@dataclass
class Tally:
    trials: int = 0
    killed: int = 0
    killed_at: dict[str, int] = field(default_factory=dict)  # the fail points among them
    stopped: int = 0
    came_to_nothing: int = 0  # the job had ended, or its rank does not pass that point
    resumed_from: dict[int, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def values_at(step: int, rank: int) -> dict[str, Any]:
    import deepfreeze as df

    whole = (torch.arange(ELEMENTS, dtype=torch.float32) + step * 1000).clone()
    own = torch.full((9,), step * 100 + rank)
    return {"w": whole, "own": df.per_rank(own), "step": step}


@dataclass(frozen=True)
class Where:
    """The machines of a job of WORLD ranks, and whether each has a near directory of its own."""

    make_job: Callable[[Work], Job]
    near: Literal["shared", "node"]


HERE = Where(lambda work: Job(WORLD, work), "shared")


def train(run: Path, rank: int, steps: int, armed: str, say: Say, where: Where) -> None:
    """Reports "from N", then each step that it was told is durable, and an error's name."""
    os.environ["DEEPFREEZE_FAIL"] = armed
    import deepfreeze as df  # arms the fail points of the environment

    ranks = df.TorchRanks(timeout_seconds=RANK_SECONDS)
    try:
        with df.Checkpointer(
            run, ranks=ranks, commit_wait_seconds=RANK_SECONDS, near=where.near
        ) as ckpt:
            state = values_at(0, rank)
            first = ckpt.restore(state) or 0
            say(f"from {first}\n{describe(state, rank)}")
            for step in range(first + 1, first + steps + 1):
                handle = ckpt.save(step, values_at(step, rank))
                assert handle is not None
                handle.wait("durable", END_SECONDS)
                say(f"durable {step}\n")
    except df.CheckpointError as error:
        say(f"error {type(error).__name__}\n")


def describe(state: dict[str, Any], rank: int) -> str:
    """A line if the state is not that of one step."""
    wanted = values_at(state["step"], rank)
    same = torch.equal(state["w"], wanted["w"])
    return "" if same and torch.equal(state["own"].value, wanted["own"].value) else "mixture\n"


def first_faults() -> list[Fault]:
    """Places where rank 0 never is, nor a process alone: each has its turn in every run."""
    return [Fault(1, False, point, 1, 0.0) for point in fail_points_of_ranks()]


def draw_fault(draw: random.Random) -> Fault:
    return Fault(
        rank=draw.randrange(WORLD),
        stops=draw.random() < 0.4,
        point=draw.choice(POINTS) if draw.random() < 0.7 else "",
        passes=draw.randint(1, STEPS),
        seconds=draw.uniform(0.2, 1.5),
    )


def disturbed(tally: Tally, run: Path, fault: Fault, where: Where) -> list[RankEnded]:
    job = where.make_job(lambda r, _, say: train(run, r, STEPS, fault.armed(r), say, where))
    if fault.stops or not fault.point:
        time.sleep(fault.seconds)
        tally.stopped += fault.stops and job.is_running(fault.rank)
        job.signal(fault.rank, signal.SIGSTOP if fault.stops else signal.SIGKILL)
    if fault.stops:
        time.sleep(3 * RANK_SECONDS)
        job.signal(fault.rank, signal.SIGCONT)
    return job.wait(END_SECONDS)


def lines(ended: list[RankEnded], word: str) -> list[str]:
    found = (line.split() for one in ended for line in one.report.splitlines())
    return [parts[-1] for parts in found if parts and parts[0] == word]


def one_trial(tally: Tally, run: Path, fault: Fault, where: Where = HERE) -> None:
    ended = disturbed(tally, run, fault, where)
    tally.trials += 1
    killed = any(one.killed for one in ended)
    tally.killed += killed
    if killed and fault.point:
        tally.killed_at[fault.point] = tally.killed_at.get(fault.point, 0) + 1
    tally.came_to_nothing += all(one.report.endswith(f"durable {STEPS}\n") for one in ended)
    acknowledged = max((int(step) for step in lines(ended, "durable")), default=0)
    again = where.make_job(lambda r, _, say: train(run, r, 1, "", say, where)).wait(END_SECONDS)
    resumed = {int(step) for step in lines(again, "from")}
    if any(one.status not in (0, signal.SIGKILL) for one in [*ended, *again]):
        tally.faults.append(f"{fault}: a rank crashed: {ended} {again}")
    elif lines([*ended, *again], "mixture"):
        tally.faults.append(f"{fault}: a mixture: {again}")
    elif len(resumed) != 1 or min(resumed) < acknowledged:
        tally.faults.append(f"{fault}: {acknowledged} was acknowledged, resumed {resumed}")
    elif len(lines(again, "durable")) != WORLD:
        tally.faults.append(f"{fault}: the next save failed: {again}")
    else:
        step = min(resumed)
        tally.resumed_from[step] = tally.resumed_from.get(step, 0) + 1


def carry_out(disturbances: int, place: Path, draw: random.Random) -> Tally:
    """Until so many kills and stops have come: a job may have ended before its own."""
    tally = Tally()
    certain = first_faults()
    for number in itertools.count():
        done = tally.killed + tally.stopped
        if done >= disturbances:
            break
        progress(done, disturbances, "kills and stops")
        fault = certain[number] if number < len(certain) else draw_fault(draw)
        try:
            one_trial(tally, place / str(number), fault)
        except HungError as hung:
            tally.faults.append(f"{fault}: {hung}")
            break  # if all hang it would not end
    return tally


def report(tally: Tally) -> str:
    return (
        f"rank faults: {tally.trials} jobs of {WORLD}, in {tally.killed} a rank was killed, in "
        f"{tally.stopped} stopped ({tally.came_to_nothing} of all had saved everything); resumed "
        f"from steps {dict(sorted(tally.resumed_from.items()))}"
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("tests.ranks.rank_faults", __doc__)
    parser.add_argument("--disturbances", type=int, default=500, help="kills and stops")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    draw = random.Random(announce_seed(options))
    with scratch(options, "rank-faults") as place:
        tally = carry_out(options.disturbances, Path(place), draw)
    return conclude(options, report(tally), asdict(tally), tally.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
