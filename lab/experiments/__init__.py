"""What is measured: each module says which cases its experiment has, and gives their rows."""

import importlib
from collections.abc import Iterator

from lab.measure.case import Case, Experiment, Plan
from lab.networks.asked import absent

NAMES = (
    "cost", "formats", "frequency", "scale", "determinism", "crash", "corruption", "sdc",
    "restore", "portability", "tearing",
)  # fmt: skip


def load(name: str) -> Experiment:
    found: Experiment = importlib.import_module(f"lab.experiments.{name}").EXPERIMENT
    return found


def cases_of(names: list[str], plan: Plan) -> Iterator[Case]:
    """First what is absent: what a model says of measured rows comes after all of them."""
    for name in names:
        found = list(load(name).cases(plan))
        yield from absent(name, plan, found)
        yield from found
