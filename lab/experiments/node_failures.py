"""No measurement: the time that a training loses on 1 to 4,096 nodes that fail.

Needs lab/simulation's program. With the default sizes, some minutes. Exit status: 0; 1 if the
program is not there; 130 if interrupted.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace

from lab.measure.options import interruptible, make_parser, positive, seeded, words_of
from lab.report.failures_page import ALL, INTERVAL, LOST, Part, heading, page
from lab.simulation.lost_time import (
    NT3,
    OFTEN,
    SHARDED,
    Assumed,
    Case,
    Point,
    Trials,
    cases,
    point,
    together,
)
from lab.simulation.machine import read_machine
from lab.simulation.model import NODES, why_not_installed

PROGRAM = "lab.experiments.node_failures"
AT_ONCE = 4
PARTS = (
    (NT3, Assumed(), (LOST, INTERVAL)),
    (SHARDED, Assumed(), ALL),
    (SHARDED, OFTEN, (LOST,)),
    (SHARDED, replace(OFTEN, together=AT_ONCE, together_share=0.1), (LOST,)),
)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(PROGRAM, __doc__, "all failures", markdown="the page")
    parser.add_argument("--runs", type=positive, default=1_000, help="of 30 days, for the spread")
    parser.add_argument("--failures", type=positive, default=20_000, help="in each long run")
    parser.add_argument("--nodes-most", type=positive, default=NODES[-1])
    return parser.parse_args(arguments)


def simulated(workload: str, nodes: list[int]) -> Iterator[Case]:
    for case in cases(read_machine(), workload, nodes=nodes):
        print(f"simulated: {workload}, {case.strategy}, {case.nodes:,} nodes", flush=True)
        yield case


def played(found: list[Case], assumed: Assumed, trials: Trials) -> list[Point]:
    print(heading(found[0].workload, assumed), flush=True)
    return [point(case, assumed, trials) for case in found]


@interruptible
def main(arguments: list[str]) -> int:
    options = parse(arguments)
    reason = why_not_installed()
    if reason is not None:
        print(f"{PROGRAM}: {reason}", file=sys.stderr)
        return 1
    trials = Trials(seeded(options, PROGRAM), options.runs, options.failures)
    nodes = [count for count in NODES if count <= options.nodes_most]
    found = {name: list(simulated(name, nodes)) for name in (NT3, SHARDED)}
    parts = [
        Part(assumed, played(found[name], assumed, trials), told) for name, assumed, told in PARTS
    ]
    at_once = [
        together(case, trials, AT_ONCE)
        for case in found[NT3] if case.result.protection is not None and case.nodes > AT_ONCE
    ]  # fmt: skip
    text = page(parts, at_once, " ".join(words_of(PROGRAM, options, trials.seed)))
    if options.markdown is not None:
        options.markdown.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
