"""What every bench of ranks is asked, and where its results go."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.measure import machine
from lab.measure.files import scratch


def make_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"lab.experiments.ranks.{name}", description=doc)
    parser.add_argument("--smoke", action="store_true", help="tiny and quick: does it work?")
    parser.add_argument("--directory", type=Path, default=Path(), help="for the checkpoints")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def with_ranks(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """For a bench whose module is started as a rank, too: `as_rank` is what that one is told."""
    parser.add_argument("--as-rank", type=json.loads, help=argparse.SUPPRESS)
    return parser


def carry_out(
    options: argparse.Namespace,
    work: Callable[[Path], dict[str, Any]],
    be_rank: Callable[[dict[str, Any]], None] | None = None,
) -> int:
    """`work` in an empty directory; its results, with the machine as it was before, as JSON.

    What is started as a rank does nothing but `be_rank`.
    """
    if be_rank is not None and options.as_rank:
        be_rank(options.as_rank)
        return 0
    ran_on = machine.describe(options.directory, 1)
    with scratch(options.directory, "ranks-") as place:
        results = work(place)
    if options.json is not None:
        options.json.write_text(json.dumps({"ran_on": ran_on, **results}, indent=1) + "\n")
    return 0


def by_layout(
    options: argparse.Namespace,
    measure: Callable[[str], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """What is measured of each layout; shown as soon as it is known."""
    results = []
    for name in options.layout:
        results.append(measure(name))
        show(results[-1])
    return {"results": results}
