"""One round of trainings: every way to save once at each interval, in shuffled order.

What they are compared with, the training that saves nothing, is in the same process and round.
"""

import gc
import random
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab.experiments.frameworks import menu_of
from lab.experiments.window import TORCH, Menu, chosen_savers
from lab.measure.loop import Experiment, Segment, run_segment
from lab.programs.answer import carry_out
from lab.writers.loop import Saver

NAMES = {"tensorflow": "keras"}  # as lab.networks calls it


def menu(framework: str) -> Menu:
    """Imports the framework."""
    if framework == "pytorch":
        return TORCH
    return menu_of(NAMES.get(framework, framework))


def experiments(request: dict[str, Any]) -> Iterator[Experiment]:
    known = menu(request["framework"])
    name = request["workload"]
    savers = chosen_savers(request["writers"], known)
    for every in request["intervals"]:
        yield Experiment(
            name, known.workloads[name], every, savers, 1, request["steps"], request["seed"],
            request["settle_seconds"],
        )  # fmt: skip


def told(segment: Segment, experiment: Experiment, saver: type[Saver]) -> dict[str, Any]:
    return {
        **asdict(segment), "every": experiment.every, "title": saver.title,
        "synced": saver.synced, "baseline": saver.is_baseline, "in_backward": saver.in_backward,
        "fault": segment.fault,
    }  # fmt: skip


def turns(request: dict[str, Any]) -> list[tuple[Experiment, type[Saver]]]:
    """What saves nothing has two turns at least: all others are divided by it."""
    pairs = [(one, saver) for one in experiments(request) for saver in one.savers]
    if len(request["intervals"]) == 1:
        pairs += [pair for pair in pairs if pair[1].is_baseline]
    random.Random(request["order_seed"]).shuffle(pairs)
    return pairs


def segments(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = Path(request["directory"])
    gc.collect()
    gc.freeze()  # what the imports left need not be looked at again between segments
    for position, (experiment, saver) in enumerate(turns(request)):
        segment = Segment(saver.name, request["repetition"], position)
        segment.saves_expected = 0 if saver.is_baseline else experiment.saves
        run_segment(segment, experiment, saver, place, lambda _: None)
        yield told(segment, experiment, saver)


def work(request: dict[str, Any]) -> dict[str, Any]:
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # it is, for dcp
    return {"segments": list(segments(request))}


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
