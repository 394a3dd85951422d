"""Jobs on several machines with near directories of their own.

`python -m tests.nodes.namespaces.cases NAME --json`; each case returns the faults that it found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tests.e2e.command import conclude, make_parser, progress, scratch
from tests.ranks import rank_faults
from tests.ranks.job import Job, Say, Work

from . import elastic, parity_cases, parity_points
from .machines import APART, Machine, NotHereError, have_a_switch
from .parity_cases import Outcome

if TYPE_CHECKING:
    import deepfreeze as df

NEVER_SECONDS = 60.0  # after which a job hangs
RANKS_SECONDS = 20.0


class Site:
    """The machines and the far tier of one case."""

    def __init__(self, place: Path) -> None:
        self._near = place / "near"
        self._near.mkdir()
        self.far = place / "far"
        self._told = place / "told"
        self.machines: list[Machine] = []

    def grow(self, machines: int) -> None:
        """To so many machines."""
        while len(self.machines) < machines:
            self.machines.append(Machine(len(self.machines), self._near))

    @property
    def run(self) -> Path:
        return self._near / "run"

    def start(self, on: Sequence[int], work: Callable[[int, Say], object]) -> Job:
        """A job whose rank i runs on the machine `on[i]`."""
        places = [self.machines[number].place() for number in on]
        return Job(len(on), lambda rank, _, say: work(rank, say), places)

    def job(self, on: Sequence[int], work: Callable[[int, Say], object]) -> list[Any]:
        """The words of its ranks, each a JSON document."""
        ended = self.start(on, work).wait(NEVER_SECONDS)
        if any(one.status != 0 for one in ended):
            raise RuntimeError(f"the job on {on} failed: {ended}")
        return [json.loads(one.report) for one in ended]

    def open(self, **options: Any) -> df.Checkpointer:
        import deepfreeze as df  # in a rank: its fail points are of the environment

        ranks = df.TorchRanks(timeout_seconds=RANKS_SECONDS)
        options = {"near": "node", "tiers": [df.tier(self.far)], "ranks": ranks, **options}
        return df.Checkpointer(self.run, **options)

    def renew(self) -> None:
        """Empty near tiers."""
        for machine in self.machines:
            machine.lose_near()
            machine.have_near()

    def forget_far(self) -> None:
        shutil.rmtree(self.far, ignore_errors=True)

    def ranks_near(self, machine: int, step: int) -> list[int]:
        """The ranks that have files of a step there."""
        run = self.machines[machine].near_file("run")
        files = run.glob(f"step-{step:012}-*/rank-*.safetensors")
        return sorted(int(file.name.split("-")[1]) for file in files)

    def tell(self) -> None:
        """In a rank."""
        self._told.touch()

    def await_told(self) -> None:
        until = time.monotonic() + NEVER_SECONDS
        while not self._told.exists():
            if time.monotonic() > until:
                raise RuntimeError("no rank has told anything")
            time.sleep(0.01)

    def end(self) -> None:
        for machine in self.machines:
            machine.end()


@contextlib.contextmanager
def site(place: Path, machines: int) -> Iterator[Site]:
    made = Site(place)
    try:
        made.grow(machines)
        yield made
    finally:
        made.end()


def saved(ckpt: df.Checkpointer, step: int, state: Any, level: Any = "durable") -> None:
    handle = ckpt.save(step, state)
    assert handle is not None
    handle.wait(level, NEVER_SECONDS)


def train(here: Site, kind: str, world: int, rank: int, say: Say, steps: int = 3) -> None:
    """Restores, if there is a checkpoint, and tells its step and places; then saves some steps."""
    from tests.ranks.training import Training

    training = Training(kind, rank, world)
    with here.open() as ckpt:
        first = ckpt.restore(training.state) or 0
        report: dict[str, Any] = {"from": first, "restored": training.digest()}
        if ckpt.last_restore is not None:
            report["places"] = {name: str(at) for name, at in ckpt.last_restore.tiers.items()}
        ckpt.attach(training.optimizer)
        for step in range(first + 1, first + steps + 1):
            training.step()
            saved(ckpt, step, training.state, "durable" if step == first + steps else "local")
        report["saved"] = training.digest()
    say(json.dumps(report))


def places_of(here: Site, report: dict[str, Any]) -> dict[str, list[int]]:
    """The numbers of the ranks whose files came from each place: "near", "far", or a host."""
    found: dict[str, list[int]] = {}
    for file, at in sorted(report["places"].items()):
        another = re.search(r" at (\w+):", at)
        kind = "far" if at.startswith(str(here.far)) else "near"
        found.setdefault(another[1] if another else kind, []).append(int(file.split("-")[1]))
    return found


def differing(what: str, old: list[Any], new: list[Any], step: int) -> list[str]:
    """Of the ranks that both jobs have."""
    return [
        f"{what}: rank {rank} has {after}, and {before['saved']} was saved"
        for rank, (before, after) in enumerate(zip(old, new, strict=False))
        if (after["from"], after["restored"]) != (step, before["saved"])
    ]


def unexpected(what: str, found: Any, wanted: Any) -> list[str]:
    return [] if found == wanted else [f"{what}: {found}, not {wanted}"]


def files_come_from_three_places(kind: str, place: Path) -> list[str]:
    """4 nodes save, 2 restore, one of them new, and save; 3 restore. Others have gone."""
    with site(place, 6) as here:

        def job(on: Sequence[int]) -> list[Any]:
            return here.job(on, lambda rank, say: train(here, kind, len(on), rank, say))

        four = job([0, 0, 1, 2, 3])
        two = job([1, 4])
        three = job([5, 0, 1])
        faults = differing("4 nodes, then 2", four, two, 3)
        faults += differing("2 nodes, then 3", two, three, 6)
        gone = [0, 1, 3, 4]  # with their nodes
        wanted: list[Any] = [{"near": [2], "far": gone}, {"node1": [2], "far": gone}]
        faults += unexpected("places of 2", [places_of(here, one) for one in two], wanted)
        another = {"node1": [0], "far": [1]}
        wanted = [another, another, {"near": [0], "far": [1]}]
        faults += unexpected("places of 3", [places_of(here, one) for one in three], wanted)
        first = {number: here.ranks_near(number, 3) for number in range(6)}
        wanted = {0: [0, 1], 1: [2], 2: [3], 3: [4], 4: [], 5: []}
        return faults + unexpected("files of step 3", first, wanted)


def ddp_from_three_places(place: Path) -> list[str]:
    return files_come_from_three_places("ddp", place)


def fsdp_from_three_places(place: Path) -> list[str]:
    return files_come_from_three_places("fsdp", place)


def a_lost_near_tier(place: Path) -> list[str]:
    """One node has lost it; then both have."""
    with site(place, 2) as here:

        def job() -> list[Any]:
            return here.job([0, 1], lambda rank, say: train(here, "ddp", 2, rank, say))

        jobs = [job()]
        here.machines[1].lose_near()
        jobs.append(job())
        for machine in here.machines:
            machine.have_near()
        jobs.append(job())
        faults = differing("one is lost", jobs[0], jobs[1], 3)
        faults += differing("both are lost", jobs[1], jobs[2], 6)
        found = [[places_of(here, one) for one in job] for job in jobs[1:]]
        one_lost = [{"near": [0], "far": [1]}, {"node0": [0], "far": [1]}]
        return faults + unexpected("places", found, [one_lost, [{"far": [0, 1]}] * 2])


def pause(here: Site, rank: int, say: Say) -> None:
    """Three steps; in the second, rank 1 is late, and tells when its save has begun."""
    os.environ["DEEPFREEZE_FAIL"] = "commit.seal_synced=sleep:1000@2" if rank == 1 else ""
    seconds = []
    with here.open(tiers=(), commit_wait_seconds=NEVER_SECONDS) as ckpt:
        for step in (1, 2, 3):
            began = time.monotonic()
            handle = ckpt.save(step, {"x": step})
            assert handle is not None
            if (rank, step) == (1, 2):
                here.tell()
            handle.wait("local", NEVER_SECONDS)
            seconds.append(time.monotonic() - began)
    say(json.dumps(seconds))


def a_link_that_is_down(place: Path, down_seconds: float = 2.5) -> list[str]:
    """The save that is under way commits when it is up again, and so do later ones."""
    with site(place, 2) as here:
        job = here.start([0, 1], lambda rank, say: pause(here, rank, say))
        here.await_told()
        here.machines[1].link("down")
        time.sleep(down_seconds)
        here.machines[1].link("up")
        ended = job.wait(NEVER_SECONDS)
        if any(one.status != 0 for one in ended):
            return [f"{ended}"]
        times = [json.loads(one.report) for one in ended]
        return [f"{times}"] if min(rank[1] for rank in times) < down_seconds - 0.5 else []


# Rank 1 leads the second node, on which rank 2 is, too. The records of the claim and of the run
# that a leader places there are files of a tier to it.
ON = (0, 1, 1)
RECORDS = [f"{kind}.{at}" for kind in ("node", "claim", "tier") for at in ("written", "renamed")]
POINTS = (*rank_faults.POINTS, *RECORDS)
# The first two leave a node that has not heard of a commit; of the second one rank 0 was told.
KILLS = ((0, "commit.manifest_renamed"), (1, "commit.manifest_written"), (2, "part.data_synced"))


def kill_fault(rank: int, point: str) -> rank_faults.Fault:
    """While the run is opened and claimed, or in the second save."""
    return rank_faults.Fault(rank, False, point, 1 if point in RECORDS else 2, 0.0)


def kill_each(place: Path, kills: Sequence[tuple[int, str]]) -> rank_faults.Tally:
    """The others hear of it in time, and the next job goes on from a checkpoint that is whole."""
    tally = rank_faults.Tally()
    with site(place, 2) as here:

        def make_job(work: Work) -> Job:
            return here.start(ON, lambda rank, say: work(rank, len(ON), say))

        where = rank_faults.Where(make_job, "node")
        for number, kill in enumerate(kills):
            progress(number, len(kills), "kills")
            rank_faults.one_trial(tally, here.run, kill_fault(*kill), where)
            here.renew()
    print(rank_faults.report(tally), file=sys.stderr)
    return tally


def killed_ranks(place: Path) -> list[str]:
    tally = kill_each(place, KILLS)
    return tally.faults + unexpected("killed", tally.killed, len(KILLS))


def kills_at_all_points(place: Path) -> list[str]:
    """Some minutes."""
    return kill_each(place, [(rank, point) for rank in range(3) for point in POINTS]).faults


def refused(here: Site, rank: int, say: Say, **options: Any) -> None:
    import deepfreeze as df

    try:
        with here.open(tiers=(), commit_wait_seconds=2, **options) as ckpt:
            saved(ckpt, 1, {"x": torch.ones(4)}, "local")
        say(json.dumps("nothing"))
    except df.CheckpointError as error:
        say(json.dumps(f"{type(error).__name__}: {error}"))


def mistakes(place: Path) -> list[str]:
    with site(place, 2) as here:
        faults = []

        def expect(what: str, *wanted: str, **options: Any) -> None:
            """Of both ranks, or of each."""
            told = here.job([0, 1], lambda rank, say: refused(here, rank, say, **options))
            print(f"{what}: {told}", file=sys.stderr)
            for rank, text in enumerate(told):
                if wanted[rank % len(wanted)] not in text:
                    faults.append(f"{what}: {text}")

        expect("no such interface", "link: interface nosuch0 has no address", link="nosuch0")
        expect("nobody is reached", "rank 0: there is no link with rank 1 after 10 s", link=APART)
        expect("nothing", "nothing")
        marker = here.machines[0].near_file("run/node.json").read_bytes()
        here.machines[1].near_file("run/node.json").write_bytes(marker)
        expect("a copied node", "it was copied from there. Delete node.json in the copy")
        here.renew()
        expect("two directories", 'or near="node" if each node has its own', near="shared")
        return faults


CASES: dict[str, Callable[[Path], list[str] | Outcome]] = {
    case.__name__: case
    for case in (
        ddp_from_three_places,
        fsdp_from_three_places,
        a_lost_near_tier,
        a_link_that_is_down,
        killed_ranks,
        kills_at_all_points,
        mistakes,
        parity_cases.ddp_loses_nodes,
        parity_cases.fsdp_loses_nodes,
        parity_cases.ddp_loses_nodes_100_times,
        parity_cases.fsdp_loses_nodes_100_times,
        parity_points.nodes_lost_at_some_points,
        parity_points.nodes_lost_at_all_points,
        elastic.torchrun_starts_it_again,
    )
}


# Not in `make test`.
FULL = (
    "kills_at_all_points",
    "ddp_loses_nodes_100_times",
    "fsdp_loses_nodes_100_times",
    "nodes_lost_at_all_points",
    "torchrun_starts_it_again",
)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("tests.nodes.namespaces.cases", __doc__)
    parser.add_argument("name", choices=CASES)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    try:
        have_a_switch()
    except NotHereError as cause:
        return conclude(options, f"LEFT OUT: {cause}", {"left_out": str(cause)}, [])
    with scratch(options, "nodes") as place:
        found = CASES[options.name](Path(place))
    outcome = found if isinstance(found, Outcome) else Outcome(found)
    figures = {"left_out": "", "told": outcome.told, "faults": outcome.faults}
    text = f"{options.name}: {len(outcome.faults)} faults. {outcome.told}"
    return conclude(options, text, figures, outcome.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
