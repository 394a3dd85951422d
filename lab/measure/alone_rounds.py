"""Interleaved rounds: every saver once in each, and fio, in an order shuffled anew."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.measure import alone as jobs
from lab.measure import fio
from lab.networks.layout import Layout
from lab.writers.menu import Entry

FIO = "fio"
Result = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """One state, saved by all."""

    layout: Layout
    entries: tuple[Entry, ...]
    rounds: int
    saves: int  # in one process, the first included
    seed: int

    def order(self, round_index: int) -> list[Entry | None]:
        """None is fio."""
        draw = random.Random(f"{self.seed} {self.layout.name} {round_index}")
        return draw.sample([None, *self.entries], len(self.entries) + 1)


def run(
    experiment: Experiment, directory: Path, progress: Callable[[str], None]
) -> Iterator[Result]:
    """One result for each saver in each round; all of one round have its `round`."""
    layout = directory / "layout.json"
    experiment.layout.write(layout)
    for round_index in range(experiment.rounds):
        order = experiment.order(round_index)
        for position, entry in enumerate(order):
            name = entry.name if entry is not None else FIO
            progress(
                f"{experiment.layout.name} round {round_index + 1} of {experiment.rounds}, "
                f"{position + 1} of {len(order)}: {name}"
            )
            found = measure(experiment, entry, directory, layout)
            yield {"saver": name, "round": round_index, "position": position, **found}


def measure(experiment: Experiment, entry: Entry | None, directory: Path, layout: Path) -> Result:
    if entry is not None:
        place = directory / "checkpoints"
        return jobs.measure(entry, layout, place, experiment.seed, experiment.saves)
    try:
        return fio.measure(directory, experiment.layout.nbytes)
    except fio.FioError as error:
        return {"error": str(error)}
