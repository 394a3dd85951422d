"""Compares what saves and restores cost by themselves, with fio in the same rounds.

Every saver saves in a process of its own, and restores in another. Exit status: 0; 1 where
DeepFreeze failed (a peer's failure is a result); 130 where interrupted (what was measured stays).
"""

import argparse
import json
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.measure import alone_rounds as rounds
from lab.measure import machine
from lab.measure.alone_rounds import Experiment, Result
from lab.measure.files import scratch
from lab.measure.options import interruptible, make_parser, positive, seeded, words_of
from lab.networks.layouts import LAYOUTS
from lab.report import alone_summary as summary
from lab.report import alone_table as table
from lab.report.grid import machine_lines
from lab.writers.menu import MENU, SAVERS

PROGRAM = "lab.experiments.storage"
BIG = ("resnet50", "resnet152", "nt3", "p1b1", "small10k")
ROUNDS = 5
SAVES = 3  # beside the first


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(
        PROGRAM, __doc__, "contents and orders", json="everything, raw rounds too",
        markdown="the tables",
    )  # fmt: skip
    parser.add_argument("--workload", nargs="+", choices=sorted(LAYOUTS), default=["resnet50"])
    parser.add_argument("--savers", nargs="+", choices=list(SAVERS), help="default: all")
    parser.add_argument("--rounds", type=positive, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument("--saves", type=positive, default=SAVES, help="in each round, and a first")
    return parser.parse_args(arguments)


def experiments(options: argparse.Namespace, seed: int) -> list[Experiment]:
    entries = tuple(one for one in MENU if options.savers is None or one.name in options.savers)
    return [
        Experiment(LAYOUTS[name](), entries, options.rounds, options.saves + 1, seed)
        for name in options.workload
    ]


@dataclass
class Report:
    """All that has been measured; written anew after every round."""

    options: argparse.Namespace
    command: str
    machine: dict[str, Any]
    found: list[tuple[Experiment, list[Result]]] = field(default_factory=list)

    def write(self) -> None:
        if self.options.json is not None:
            self.options.json.write_text(json.dumps(self.as_json()) + "\n")
        if self.options.markdown is not None:
            self.options.markdown.write_text(self.markdown())

    def as_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "command": self.command,
            "machine": self.machine,
            "experiments": [summary.as_json(*one) for one in self.found],
        }

    def markdown(self) -> str:
        lines = ["# What saving and restoring cost", "", f"`{self.command}`", ""]
        lines += [*machine_lines(self.machine), ""]
        return "\n".join([*lines, *(table.markdown(*one) for one in self.found)])


def follow(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def run_all(wanted: Iterable[Experiment], report: Report, place: Path) -> None:
    for experiment in wanted:
        results: list[Result] = []
        report.found.append((experiment, results))
        try:
            for result in rounds.run(experiment, place, follow):
                results.append(result)
                if len(results) % (len(experiment.entries) + 1) == 0:
                    report.write()
        finally:
            report.write()
            print(f"\n{table.text(experiment, results)}\n", flush=True)


def ours_failed(report: Report) -> bool:
    found = (row for one in report.found for row in summary.rows(*one))
    return any(row["status"] != "ok" for row in found if row["saver"] == table.OURS)


@interruptible
def main(arguments: list[str]) -> int:
    options = parse(arguments)
    seed = seeded(options, PROGRAM)
    with scratch(options.directory, "bench-storage-") as place:
        described = machine.describe(place, threads=1)
        report = Report(options, shlex.join(words_of(PROGRAM, options, seed)), described)
        run_all(experiments(options, seed), report, place.resolve())
    return 1 if ours_failed(report) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
