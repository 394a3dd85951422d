"""Does the time to durable fall with more ranks? `python -m lab.experiments.ranks.sharing`.

Every rank has the same state, as in a data-parallel job, and writes its share of it. Each one's
storage is slowed down alike, by a pause before each slab of 4 MiB, so that one machine's disk does
not stand for all: what is measured is the sharing, not the disk. Jobs of 1, 2 and 4 ranks take
turns; each makes one save that is not counted, then some that are.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

import deepfreeze as df
from lab.experiments.ranks.options import by_layout, carry_out, make_parser, with_ranks
from lab.measure.ranks_jobs import run_job
from lab.measure.ranks_segments import gathered, join, report
from lab.networks.layout import Layout, equal_tensors
from lab.networks.layouts import LAYOUTS


def state_of(layout: Layout) -> dict[str, torch.Tensor]:
    """The same on every rank."""
    torch.manual_seed(1)
    state = {}
    for spec in layout.tensors:
        tensor = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype))
        state[spec.name] = tensor.uniform_() if tensor.is_floating_point() else tensor.zero_()
    return state


def chosen_layout(name: str) -> Layout:
    if name == "smoke":
        return equal_tensors("smoke", "smoke size", 4, 64 << 20)
    return LAYOUTS[name]()


def be_rank(arguments: dict[str, Any]) -> None:
    join()
    state = state_of(chosen_layout(arguments["layout"]))
    seconds, status = [], None
    with df.Checkpointer(arguments["run"], keep=df.keep(last=1)) as ckpt:
        for step in range(1 + arguments["saves"]):
            dist.barrier()
            began = time.perf_counter()
            handle = ckpt.save(step, state)
            assert handle is not None
            handle.wait("durable")
            seconds.append(max(gathered(time.perf_counter() - began)))
            status = handle.status()
    assert status is not None
    report(arguments, {"seconds": seconds[1:], "bytes": gathered(status.bytes)})


def measure(options: argparse.Namespace, name: str, place: Path) -> dict[str, Any]:
    """By number of ranks: each save's seconds until durable on all, and each rank's bytes."""
    found: dict[int, dict[str, Any]] = {ranks: {"seconds": []} for ranks in options.ranks}
    pause = {"DEEPFREEZE_FAIL": f"part.write=sleep:{options.pause}"}
    for round_number in range(options.rounds):
        for ranks in options.ranks:
            run = place / f"{name}-{round_number}-{ranks}"
            given = {"layout": name, "saves": options.saves, "run": str(run)}
            job = run_job(ranks, "lab.experiments.ranks.sharing", given, pause)
            found[ranks]["seconds"] += job["seconds"]
            found[ranks]["bytes"] = job["bytes"]
    spreads = {ranks: max(one["bytes"]) - min(one["bytes"]) for ranks, one in found.items()}
    return {"layout": name, "ranks": found, "spread_bytes": spreads}


def show(result: dict[str, Any]) -> None:
    alone = median(result["ranks"][1]["seconds"])
    print(f"\n{result['layout']}: seconds until durable, median [least, greatest]")
    for ranks, one in result["ranks"].items():
        seconds = sorted(one["seconds"])
        speedup = alone / median(seconds)
        print(
            f"  {ranks} ranks: {median(seconds):6.2f} [{seconds[0]:.2f}, {seconds[-1]:.2f}]"
            f"  {speedup:5.2f} times as fast = {speedup / ranks:.2f} of {ranks};"
            f" bytes of ranks differ by {result['spread_bytes'][ranks]:,} at most"
        )


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = with_ranks(make_parser("sharing", __doc__))
    parser.add_argument("--layout", nargs="+", default=["resnet50", "nt3"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--saves", type=int, default=3, help="of each job, besides the first")
    parser.add_argument("--pause", type=int, default=80, help="ms before each slab of 4 MiB")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.layout, options.rounds, options.saves, options.pause = ["smoke"], 1, 1, 5
    if 1 not in options.ranks:
        parser.error("--ranks: 1 is what the others are compared with")
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)

    def work(place: Path) -> dict[str, Any]:
        return by_layout(options, lambda name: measure(options, name, place), show)

    return carry_out(options, work, be_rank)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
