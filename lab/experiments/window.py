"""Compares ways to save, beside a training loop: `python -m lab.experiments.window --every 4,1`.

In each round every saver trains for the same steps, in an order shuffled by a printed seed; run
times are compared with that of the same round without checkpoints. Exit status 1 where a saver
failed or a save was not committed, 130 where interrupted (what was measured is shown).
"""

import argparse
import gc
import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from lab.measure import loop as measure
from lab.measure import machine
from lab.measure.files import scratch
from lab.measure.loop import Experiment, Workload
from lab.measure.options import (
    interruptible,
    intervals,
    make_parser,
    positive,
    seeded,
    words_of,
)
from lab.measure.progress import Follower
from lab.networks.torch_workloads import WORKLOADS
from lab.report import loop_table as report
from lab.writers.loop import DEEPFREEZE, NoneInBackward, Saver
from lab.writers.loop_peers import PEERS

SAVERS = {saver.name: saver for saver in (*DEEPFREEZE, *PEERS)}


@dataclass(frozen=True)
class Menu:
    """What there is to choose from, with "tiny" among the workloads."""

    program: str  # as python -m runs it
    workloads: Mapping[str, Workload]
    savers: Mapping[str, type[Saver]]


TORCH = Menu("lab.experiments.window", WORKLOADS, SAVERS)
SMOKE_ROUNDS = 2
ROUNDS = 5


def parse(arguments: list[str], menu: Menu) -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = make_parser(
        menu.program, __doc__, "weights, batches and orders", json="everything, raw rounds too",
        markdown="the tables",
    )  # fmt: skip
    names = sorted(menu.workloads)
    parser.add_argument("--workload", nargs="+", choices=names, help="default: resnet50")
    parser.add_argument("--every", type=intervals, default=[4, 1], help="steps between saves: 4,1")
    parser.add_argument("--savers", nargs="+", choices=sorted(menu.savers), help="default: all")
    parser.add_argument("--rounds", type=positive, help=f"default: {ROUNDS}")
    parser.add_argument("--steps", type=positive, help="of a segment; default: by workload")
    parser.add_argument("--threads", type=positive, default=min(2, cores), help="of the training")
    parser.add_argument("--smoke", action="store_true", help="tiny and quick: does it work?")
    options = parser.parse_args(arguments)
    if options.steps is not None and options.steps < max(options.every):
        parser.error(f"--steps {options.steps}: no save with --every {max(options.every)}")
    return options


def chosen_savers(names: list[str] | None, menu: Menu = TORCH) -> tuple[type[Saver], ...]:
    """The wanted ones in the order of the menu, and the baselines that they are compared with."""
    wanted = [saver for name, saver in menu.savers.items() if names is None or name in names]
    baselines: list[type[Saver]] = [Saver]
    if any(saver.in_backward for saver in wanted):
        baselines.append(NoneInBackward)
    return (*baselines, *wanted)


def experiments(options: argparse.Namespace, seed: int, menu: Menu) -> Iterator[Experiment]:
    savers = chosen_savers(options.savers, menu)
    rounds = options.rounds or (SMOKE_ROUNDS if options.smoke else ROUNDS)
    for name in options.workload or ["tiny" if options.smoke else "resnet50"]:
        workload = menu.workloads[name]
        for every in options.every:
            steps = options.steps or max(workload.steps, every)
            settle = 0.0 if options.smoke else 0.5
            yield Experiment(name, workload, every, savers, rounds, steps, seed, settle)


class Tables(Protocol):
    """Shows the results: lab.report.loop_table, or a module like it."""

    def text(self, result: report.Result) -> str: ...

    def markdown(
        self, results: list[report.Result], machine: dict[str, Any], command: str
    ) -> str: ...

    def figures(
        self, results: list[report.Result], machine: dict[str, Any], command: str
    ) -> dict[str, Any]: ...


class Writer:
    """Writes the files anew after every experiment: a long run may end early."""

    def __init__(
        self, options: argparse.Namespace, command: str, place: Path, tables: Tables
    ) -> None:
        self.options = options
        self.command = command
        self.machine = machine.describe(place, options.threads)
        self.tables = tables

    def write(self, results: list[report.Result]) -> None:
        if self.options.json is not None:
            figures = self.tables.figures(results, self.machine, self.command)
            self.options.json.write_text(json.dumps(figures) + "\n")
        if self.options.markdown is not None:
            text = self.tables.markdown(results, self.machine, self.command)
            self.options.markdown.write_text(text)


def run_all(wanted: Iterable[Experiment], place: Path, writer: Writer) -> Iterator[report.Result]:
    results: list[report.Result] = []
    for experiment in wanted:
        result = report.Result(experiment, [])
        results.append(result)
        follower = Follower(experiment.steps)
        try:
            for segment in measure.run(experiment, place, follower):
                result.segments.append(segment)
        finally:
            follower.clear()
            writer.write(results)
            print(f"\n{writer.tables.text(result)}", flush=True)
        yield result


def carry_out(
    options: argparse.Namespace,
    program: str,
    wanted: Callable[[int], Iterable[Experiment]],
    tables: Tables,
) -> int:
    """Measures the `wanted` results of a seed; the exit status."""
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # it is, for dcp
    gc.collect()
    gc.freeze()  # what the imports left need not be looked at again between segments
    seed = seeded(options, program)
    failed = 0
    with scratch(options.directory, "bench-window-") as place:
        writer = Writer(options, shlex.join(words_of(program, options, seed)), place, tables)
        for result in run_all(wanted(seed), place, writer):
            failed += len(result.failed())
    return 1 if failed else 0


@interruptible
def main(arguments: list[str], menu: Menu = TORCH) -> int:
    options = parse(arguments, menu)
    return carry_out(options, menu.program, lambda seed: experiments(options, seed, menu), report)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
