"""Packed files on tiers: `python -m lab.experiments.packing` (after `make build`).

Three networks are trained some steps from a seed and saved twice. Told are the ratio of their data,
and GB/s of one core that packs (with the check that each packed block comes back) and unpacks. Then
both checkpoints are flushed over links of several rates, with compress=None and "auto" in turns, in
an order shuffled by the printed seed; ratios of time are of the same round. The links are made by
the C++ program deepfreeze_packing: a tier that takes bytes no faster than a line of that rate.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.experiments.stores.table import publish
from lab.measure import machine

from .states import NETWORKS, ROOT, TINY, train
from .table import markdown

PROGRAM = ROOT / "build" / "release" / "lab" / "micro" / "deepfreeze_packing"
LINKS = ["0.05", "0.3", "1", "4"]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("packing", description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--links", nargs="+", default=LINKS, help="GB/s")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="of all files")
    parser.add_argument("--smoke", action="store_true", help="a tiny network, one round, one link")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(arguments)
    if options.smoke:
        options.networks, options.links, options.rounds = ["tiny"], ["0.05"], 1
    return options


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    network = TINY if name == "tiny" else NETWORKS[name]
    with tempfile.TemporaryDirectory(prefix="packing-", dir=options.directory) as place:
        train(network, Path(place) / "run")
        words = [PROGRAM, f"{place}/run", f"{place}/far", options.rounds, options.seed]
        told = subprocess.run(
            [*map(str, words), *options.links], stdout=subprocess.PIPE, text=True, check=True
        )
    load = os.getloadavg()[0]
    return {"network": name, "title": network.title, "load": load, **json.loads(told.stdout)}


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    about = machine.describe(options.directory, 1)
    measured = []
    for name in options.networks:
        measured.append(measure(name, options))
        print(f"{name}: done", file=sys.stderr, flush=True)
    command = " ".join(["python -m lab.experiments.packing", *arguments])
    told = {"command": command, "machine": about, "measured": measured}
    publish(options, told, markdown(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
