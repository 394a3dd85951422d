"""Resume identity among ranks: `python -m tests.ranks.resume_identity --runs 50 [--json]`.

All ranks are killed with SIGKILL at a random moment, perhaps again, and resumed in new processes
until they end; then each must have the SHA-256 of the undisturbed job's same rank.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.command import announce_seed, conclude, make_parser, progress, scratch

from .job import Job, Work
from .training import KINDS, STEPS, train

WAIT_SECONDS = 120.0
KILLS_MAX = 4
ADVANCE_MAX = 4  # steps from one kill to the next
ATTEMPTS_MAX = 5  # at a run that was not over before it could be killed


@dataclass
class Tally:
    """The results of all runs of one kind of job."""

    kind: str
    world: int
    runs: int = 0
    identical: int = 0
    kills: int = 0
    resumed_from: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def reference(kind: str, world: int) -> list[str]:
    """Each rank's end if nothing disturbs it and nothing is saved."""
    ended = Job(world, lambda r, w, say: say(train(kind, None, r, w))).wait(WAIT_SECONDS)
    assert all(one.status == 0 for one in ended), ended
    return [one.report for one in ended]


def undisturbed_seconds(tally: Tally, wanted: list[str], run: Path) -> float:
    """The time of a job that saves and is not killed. It ends as the reference does."""
    began = time.monotonic()
    ended = Job(tally.world, saving(tally.kind, run)).wait(WAIT_SECONDS)
    if [one.report.split()[-1] for one in ended] != wanted:
        tally.faults.append(f"{tally.kind} of {tally.world}: saving changed the end: {ended}")
    return time.monotonic() - began


def saving(kind: str, run: Path) -> Work:
    return lambda rank, world, say: say(train(kind, run, rank, world))


def newest_begun(run: Path) -> int:
    """The newest step whose save has begun."""
    return max((int(path.name.split("-")[1]) for path in run.glob("step-*")), default=0)


def wait_for_step(run: Path, step: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while newest_begun(run) < step and time.monotonic() < deadline:
        time.sleep(0.002)


def killed(tally: Tally, seconds: float, run: Path, draw: random.Random) -> int:
    """How often it was: some steps on, however slow they are here, or at any time at all."""
    times = 0
    for number in range(draw.randint(1, KILLS_MAX)):
        begun = newest_begun(run)
        if begun == STEPS:
            break
        steps = draw.randint(number == 0, ADVANCE_MAX)
        job = Job(tally.world, saving(tally.kind, run))
        wait_for_step(run, min(begun + steps, STEPS - 1))
        time.sleep(draw.uniform(0, seconds / STEPS if steps else seconds))
        job.kill_all()
        times += all(one.killed for one in job.wait(WAIT_SECONDS))
    return times


def one_run(
    tally: Tally, wanted: list[str], seconds: float, run: Path, draw: random.Random
) -> None:
    """Killed until it is not."""
    times = 0
    for attempt in range(ATTEMPTS_MAX):
        place = run / str(attempt)  # after one that came to its end nothing is left to be killed
        times = killed(tally, seconds, place, draw)
        if times:
            break
    tally.kills += times
    ended = Job(tally.world, saving(tally.kind, place)).wait(WAIT_SECONDS)
    tally.runs += 1
    found = [one.report.split() for one in ended]
    if any(one.status != 0 for one in ended) or any(len(each) != 2 for each in found):
        tally.faults.append(f"{tally.kind} of {tally.world}: a resumed rank failed: {ended}")
        return
    tally.resumed_from += [int(each[0]) for each in found[:1]]
    if [each[1] for each in found] == wanted:
        tally.identical += 1
    else:
        tally.faults.append(f"{tally.kind} of {tally.world}: resumed from {found}, not {wanted}")


def carry_out(kind: str, world: int, runs: int, place: Path, draw: random.Random) -> Tally:
    tally = Tally(kind, world)
    wanted = reference(kind, world)
    seconds = undisturbed_seconds(tally, wanted, place / f"{kind}-{world}")
    for number in range(runs):
        progress(number, runs, f"runs of {kind} with {world} ranks")
        one_run(tally, wanted, seconds, place / f"{kind}-{world}-{number}", draw)
    if runs > 2 and not any(tally.resumed_from):
        tally.faults.append(f"{kind} of {world}: no run was resumed from a step: no power")
    return tally


def report(tallies: list[Tally]) -> str:
    return "\n".join(
        f"ranks: {t.kind} of {t.world}: {t.identical} of {t.runs} runs identical after {t.kills} "
        f"kills of all ranks, resumed from steps {sorted(set(t.resumed_from))}"
        for t in tallies
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("tests.ranks.resume_identity", __doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--worlds", nargs="+", type=int, default=[2, 4])
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    draw = random.Random(announce_seed(options))
    with scratch(options, "ranks") as place:
        tallies = [
            carry_out(kind, world, options.runs, Path(place), draw)
            for kind in options.kinds
            for world in options.worlds
        ]
    figures: dict[str, Any] = {"jobs": [asdict(tally) for tally in tallies]}
    return conclude(options, report(tallies), figures, [f for t in tallies for f in t.faults])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
