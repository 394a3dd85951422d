"""Checkpoints beside a training: every saver once in each round, at every interval.

The rounds of all models and intervals take turns, so that each has as many when the time is over.
"""

import argparse
import gc
import warnings
from dataclasses import asdict
from pathlib import Path

from lab.measure import devices
from lab.measure import loop as measure
from lab.measure.devices import Budget, Lines, Meter, OutOfTime, Taken, give_back
from lab.measure.loop import Experiment
from lab.measure.loop_summary import spread
from lab.networks import gpu_workloads as models
from lab.writers.loop import Saver
from lab.writers.loop_gpu import SAVERS, DeepFreeze

SAVES_MIN = 2  # of a segment: the period between two saves is what its run time is of
LINK_BYTES, QUICK_LINK_BYTES = 1 << 30, 1 << 22


def experiments(options: argparse.Namespace, seed: int) -> list[Experiment]:
    named = [one for one in SAVERS if options.savers is None or one.name in options.savers]
    savers: tuple[type[Saver], ...] = (Saver, *named)
    made = []
    for name in options.workload or models.MODELS:
        workload = models.workload(name, options.device, quick=options.quick)
        for every in options.every:
            steps = every * max(SAVES_MIN, workload.steps // every)
            settle = 0.0 if options.quick else 0.5
            made.append(
                Experiment(name, workload, every, savers, options.rounds, steps, seed, settle)
            )
    return made


class Course:
    """One experiment, and how far it has come."""

    def __init__(self, experiment: Experiment, device: str, place: Path) -> None:
        self.experiment = experiment
        self.meter = Meter(experiment.steps, device)
        self.segments = measure.run(experiment, place, self.meter)
        self.taken: list[Taken] = []
        self.stopped = False

    def run_round(self, round_index: int, link: float, budget: Budget, lines: Lines) -> None:
        """Stops for good before the first segment that would not fit."""
        for saver in self.experiment.order(round_index):
            work = f"{self.experiment.name} {saver.name}"
            self.stopped = self.stopped or not budget.fits(work)
            if self.stopped:
                return
            with budget.timed(work):
                segment = next(self.segments)
            self.taken.append(Taken(segment, self.meter.peaks, link))
            place = {"workload": self.experiment.name, "every": self.experiment.every}
            peaks = {} if self.meter.peaks is None else asdict(self.meter.peaks)
            lines.add("segment", {**place, **asdict(segment), **peaks, "link": link})

    def summarise(self, device: str, lines: Lines) -> bool:
        """Whether DeepFreeze did what it was asked for."""
        found = devices.rows(self.experiment, self.taken)
        for one in found:
            lines.add("row", {"model": self.experiment.workload.title, **one})
        for target in devices.targets(self.experiment, found) if device == devices.CUDA else []:
            lines.add("target", target)
        return all(one["status"] != "failed" for one in found if one["saver"] == DeepFreeze.name)


def measure_link(options: argparse.Namespace, lines: Lines, round_index: int) -> float:
    nbytes = QUICK_LINK_BYTES if options.quick else LINK_BYTES
    found = devices.link(options.device, nbytes)
    give_back(options.device)
    measured = spread(found.gb_per_second)
    assert measured is not None
    row = {"round": round_index, "bytes": nbytes, "resident": found.resident}
    lines.add("link", {**row, "gb_per_second": asdict(measured)})
    return measured.median


def run_rounds(
    options: argparse.Namespace, courses: list[Course], budget: Budget, lines: Lines
) -> None:
    for round_index in range(options.rounds):
        link = measure_link(options, lines, round_index)
        for course in courses:
            course.run_round(round_index, link, budget, lines)


def run(options: argparse.Namespace, seed: int, place: Path, lines: Lines, budget: Budget) -> int:
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # it is, for dcp
    courses = [Course(one, options.device, place) for one in experiments(options, seed)]
    over = False
    gc.collect()
    gc.freeze()  # what the imports left need not be looked at again between segments
    try:
        with budget.enforced():
            run_rounds(options, courses, budget, lines)
    except OutOfTime:
        over = True
    finally:
        gc.unfreeze()
        good = [course.summarise(options.device, lines) for course in courses]
    if over or any(course.stopped for course in courses):
        lines.add("note", {"text": "the time was over before all rounds were run"})
    return 0 if all(good) else 1
