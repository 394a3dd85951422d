"""The same faults for DeepFreeze and its peers, each as its documentation says.

Power cuts want root, loop devices, mkfs.ext4 and mkfs.xfs; else they are left out, and that is
said. Exit status: 0; 1 where DeepFreeze failed (a peer's failure is a result); 130 where
interrupted (what was found stays).
"""

import argparse
import json
import shlex
import signal
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.experiments.torture.campaign import (
    CAPTURED,
    FAULTS,
    FULL,
    QUICK,
    Campaign,
    Row,
    faults_of,
    what_is_missing,
)
from lab.faults.state import DETECTED, FELL_BACK, HARMLESS, KEPT, OF_NEWER, OF_OLDER, layout
from lab.measure import machine
from lab.measure.files import scratch
from lab.measure.options import interruptible, make_parser, seeded, words_of
from lab.report import torture_table as table
from lab.writers.menu import VICTIMS, WITH_AGENT

PROGRAM = "lab.experiments.torture"
MENU = (VICTIMS[0], WITH_AGENT, *VICTIMS[1:])
OURS = "df"
OURS_MAY = {DETECTED, FELL_BACK, HARMLESS, KEPT, OF_NEWER, OF_OLDER}
QUICK_SAVERS = ("df", "df-agent", "torch-save", "torch-save-fsync", "safetensors")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(
        PROGRAM, __doc__, "contents, places and moments", json="every trial",
        out="the table, in Markdown",
    )  # fmt: skip
    parser.set_defaults(directory=Path("build"))
    parser.add_argument("--quick", action="store_true", help="a few trials, of what starts soon")
    parser.add_argument(
        "--savers", nargs="+", choices=[one.name for one in MENU], help="default: all"
    )
    parser.add_argument("--faults", nargs="+", choices=FAULTS, help="default: all")
    return parser.parse_args(arguments)


@dataclass
class Report:
    """All that has been found; written anew after every fault of every saver."""

    options: argparse.Namespace
    seed: int
    machine: dict[str, Any]
    left_out: dict[str, str]
    rows: dict[str, Row] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        one = layout()
        return {
            "format": 1,
            "command": shlex.join(words_of(PROGRAM, self.options, self.seed)),
            "seed": self.seed,
            "machine": self.machine,
            "state": f"{one.title}: {one.nbytes / 1e6:.1f} MB in {len(one.tensors)} tensors",
            "sizes": asdict(QUICK if self.options.quick else FULL),
            "left_out": self.left_out,
            "rows": [row.as_json() for row in self.rows.values()],
        }

    def take(self, row: Row) -> None:
        self.rows[row.entry.name] = row
        figures = self.as_json()
        if self.options.json is not None:
            self.options.json.write_text(json.dumps(figures, separators=(",", ":")) + "\n")
        if self.options.out is not None:
            self.options.out.write_text(table.markdown(figures))

    def ours_failed(self) -> bool:
        return any(failed(self.rows[name]) for name in (OURS, WITH_AGENT.name) if name in self.rows)


def failed(row: Row) -> bool:
    """Without an agent a captured save ends with its process: that alone may be lost."""
    judged = [one for one in row.results if one.fault != CAPTURED or row.entry is WITH_AGENT]
    outcomes = {trial.outcome for result in judged for trial in result.trials}
    broken = row.unavailable or any(result.error for result in row.results)
    return bool(broken) or not outcomes <= OURS_MAY


def campaign(options: argparse.Namespace, seed: int, place: Path) -> Campaign:
    default = QUICK_SAVERS if options.quick else tuple(one.name for one in MENU)
    names = options.savers or default
    faults = faults_of(options.faults or FAULTS)
    return Campaign(
        entries=tuple(one for one in MENU if one.name in names),
        faults=faults,
        sizes=QUICK if options.quick else FULL,
        seed=seed,
        left_out=what_is_missing(faults, place),
        place=place,
        progress=follow,
    )


def follow(text: str) -> None:
    print(f"torture: {text}", file=sys.stderr, flush=True)


@interruptible
def main(arguments: list[str]) -> int:
    options = parse(arguments)
    seed = seeded(options, PROGRAM)
    began = time.perf_counter()
    options.directory.mkdir(parents=True, exist_ok=True)
    with scratch(options.directory, "bench-torture-") as scratched:
        one = campaign(options, seed, scratched.resolve())
        described = machine.describe(scratched, threads=1)
        del described["training_threads"]  # nothing trains here
        report = Report(options, seed, described, one.left_out)
        for line in table.left_out_lines(report.as_json()):
            print(line, flush=True)
        with closing(one.run()) as rows:
            for row in rows:
                report.take(row)
    print(f"\n{table.markdown(report.as_json())}\n{time.perf_counter() - began:.0f} s", flush=True)
    return 1 if report.ours_failed() else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # tidied up after as well
    sys.exit(main(sys.argv[1:]))
