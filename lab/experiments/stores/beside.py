"""A training with a flush to a store beside it: `python -m lab.experiments.stores.beside`.

Segments of the same steps of one training, by one thread, with and without a flush beside them, in
turns; the checkpoint that is flushed is so large that the flush outlasts the segment. Told are the
time over that of the same round without a flush, the same of the training thread's processor time,
and the bytes that were sent over those that the limit allows.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lab.measure import machine
from lab.measure.program import ask
from lab.networks.torch_workloads import WORKLOADS

from .servers import SERVERS
from .table import publish, spread
from .training import ALONE, FLUSHED

PROGRAM = "lab.experiments.stores.training"
SECONDS_MAX = 3600.0
HEAD = (
    "| server | rate, MB/s | run time | thread's CPU time | sent over the rate | CPU s/GB | load |"
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("stores.beside", description=__doc__)
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--workload", choices=WORKLOADS, default="nt3-6k")
    parser.add_argument("--rates", nargs="+", type=int, default=[100, 20], help="MB/s, of each")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a segment, about")
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="of the near tier")
    parser.add_argument("--smoke", action="store_true", help="one short round against the sink")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(arguments)
    if options.smoke:
        options.servers, options.rates, options.workload = ["sink"], [20], "tiny"
        options.rounds, options.seconds = 1, 1.0
    return options


def measure(options: argparse.Namespace, name: str, rate: int) -> dict[str, Any]:
    with ExitStack() as closed:
        place = Path(closed.enter_context(
            tempfile.TemporaryDirectory(prefix="stores-", dir=options.directory)))  # fmt: skip
        server = closed.enter_context(SERVERS[name]())
        request = {
            "place": str(place), "url": f"s3://{server.uploads}/beside",
            "workload": options.workload, "rounds": options.rounds, "seconds": options.seconds,
            "rate": rate * 1_000_000, "seed": options.seed,
        }  # fmt: skip
        told = ask(Path(sys.executable), PROGRAM, request, place, seconds_max=SECONDS_MAX,
                   variables=server.variables)  # fmt: skip
        return {"server": server.name, "rate": rate, **told}


def line(one: dict[str, Any]) -> str:
    by_kind: dict[str, dict[int, dict[str, Any]]] = {ALONE: {}, FLUSHED: {}}
    for segment in one["segments"]:
        by_kind[segment["kind"]][segment["round"]] = segment
    pairs = [(by_kind[FLUSHED][each], by_kind[ALONE][each]) for each in by_kind[ALONE]]
    rate = one["rate"] * 1e6
    cells = [
        one["server"], str(one["rate"]),
        spread((beside["seconds"] / alone["seconds"] for beside, alone in pairs), 3),
        spread((beside["thread_seconds"] / alone["thread_seconds"] for beside, alone in pairs), 3),
        spread((beside["sent"] / beside["seconds"] / rate for beside, _ in pairs), 3),
        spread(((beside["cpu_seconds"] - beside["thread_seconds"]) * 1e9 / beside["sent"]
                for beside, _ in pairs), 3),
        spread((segment["load"] for segment in one["segments"]), 1),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def markdown(told: dict[str, Any]) -> str:
    about = [f"- {name.replace('_', ' ')}: {value}" for name, value in told["machine"].items()]
    return "\n".join([
        "# A training with a flush to a store beside it", "", f"`{told['command']}`", "",
        *about, "",
        HEAD, "|---|---|---|---|---|---|---|", *map(line, told["measured"]), "",
        "- [,]: min-max of the rounds, beside their median; run time and CPU time are over those "
        "of the same round without a flush", "",
    ])  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    about = machine.describe(options.directory, 1)
    measured = []
    for name, rate in zip(options.servers, options.rates, strict=False):
        try:
            measured.append(measure(options, name, rate))
        except LookupError as error:
            print(f"{name}: {error}", file=sys.stderr)
    about |= {"load_average_after": os.getloadavg()[0]}
    command = " ".join(["python -m lab.experiments.stores.beside", *arguments])
    told = {"command": command, "machine": about, "measured": measured}
    publish(options, told, markdown(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
