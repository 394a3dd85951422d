"""The cost of saving for a data-parallel training: `python -m lab.experiments.ranks.beside`.

All ranks of one job under torchrun train the same segments: in each round every saver once, in an
order shuffled anew, from the same weights. A segment's time is that of its steps and of the wait
until its last save is committed, over that of the same round without checkpoints. A stall is what
the worst rank waits in one save and its fence; what rank 0 alone does stalls the others in their
next step, which only the run time shows.
"""

import argparse
import random
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from lab.experiments.ranks.options import carry_out, make_parser, with_ranks
from lab.measure.loop import Experiment
from lab.measure.ranks_jobs import run_job
from lab.measure.ranks_segments import TorchJob, report, train_all
from lab.networks.torch_workloads import WORKLOADS, Parts, Workload
from lab.writers.loop import Saver
from lab.writers.loop_ranks import SAVERS


def data_parallel(workload: Workload) -> Workload:
    def make_parts() -> Parts:
        parts = workload.make_parts()
        return replace(parts, model=DistributedDataParallel(parts.model))

    return replace(workload, make_parts=make_parts)


def experiment_of(arguments: dict[str, Any]) -> Experiment:
    name = arguments["workload"]
    return Experiment(
        name, data_parallel(WORKLOADS[name]), arguments["every"], SAVERS, arguments["rounds"],
        arguments["steps"], arguments["seed"],
    )  # fmt: skip


def be_rank(arguments: dict[str, Any]) -> None:
    experiment, job = experiment_of(arguments), TorchJob()
    shared = Path(arguments["directory"])
    by_rank = train_all(experiment, range(experiment.rounds), shared, job)
    for one in by_rank[job.rank]:
        if one["fault"]:
            raise RuntimeError(f"{one['saver']}: {one['fault']}")
    report(arguments, by_rank)


def table(by_rank: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A row for each saver, of the segments in which it trained."""
    alone = {one["round"]: one["seconds"] for one in by_rank[0] if one["saver"] == Saver.name}
    rows = []
    for saver in SAVERS[1:]:
        indices = [i for i, one in enumerate(by_rank[0]) if one["saver"] == saver.name]
        own = [by_rank[0][i] for i in indices]
        stalls = [
            max(each) for i in indices
            for each in zip(*(rank[i]["stalls"] for rank in by_rank), strict=True)
        ]  # fmt: skip
        rows.append({
            "saver": saver.title,
            "run_time": sorted(one["seconds"] / alone[one["round"]] for one in own),
            "stall_ms": sorted(1000 * stall for stall in stalls),
            "durable": sorted(seconds for one in own for seconds in one["durable"]),
        })  # fmt: skip
    return rows


def show(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    print(f"{options.workload}, {options.ranks} ranks, a save every {options.every} steps")
    print(f"{'':34}{'run time':>24}{'stall ms':>12}{'worst':>9}{'committed s':>13}")
    for one in rows:
        times, stalls = one["run_time"], one["stall_ms"]
        print(
            f"{one['saver']:34}{median(times):8.3f} [{times[0]:.3f}, {times[-1]:.3f}]"
            f"{median(stalls):12.1f}{stalls[-1]:9.1f}{median(one['durable']):13.2f}"
        )


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = with_ranks(make_parser("beside", __doc__))
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="resnet50")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--every", type=int, default=4, help="steps between saves")
    parser.add_argument("--steps", type=int, default=16, help="of a segment")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args(arguments)
    if options.smoke:
        options.workload, options.every, options.steps, options.rounds = "tiny", 2, 4, 1
    return options


def measure(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    names = ("workload", "every", "steps", "rounds", "seed")
    given = {name: getattr(options, name) for name in names}
    told = {**given, "directory": str(place.resolve())}
    rows = table(run_job(options.ranks, "lab.experiments.ranks.beside", told))
    show(options, rows)
    return {"ranks": options.ranks, **given, "rows": rows}


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    return carry_out(options, lambda place: measure(options, place), be_rank)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
