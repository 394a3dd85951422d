"""What is measured: each module says which cases its experiment has, and gives their rows."""

import importlib
from collections.abc import Iterator

from lab.measure.case import Case, Experiment, Plan
from lab.networks.asked import absent

# In the order of the report: title, and the question that the rows answer.
EXPERIMENTS = {
    "cost": (
        "The cost of a save",
        "How long does a save hold the training up, and how long until it would survive "
        "a power cut?",
    ),
    "formats": (
        "File formats and sizes",
        "What is a checkpoint on disk, how large is it, and is it the same for the same state?",
    ),
    "frequency": (
        "Overhead against the interval",
        "By how much do checkpoints lengthen a training, saved every so many steps?",
    ),
    "scale": (
        "Several ranks",
        "What does saving cost a training of several ranks, by who of them writes?",
    ),
    "determinism": (
        "Deterministic restart",
        "Does a training that is killed and resumed end bit for bit the same?",
    ),
    "crash": (
        "Crash consistency",
        "Which checkpoint is left where the process, the power or the space ends in a save?",
    ),
    "corruption": ("Corruption", "Does a load notice that the files are not as they were written?"),
    "sdc": (
        "Silent data corruption",
        "What do flipped bits in a checkpoint do to the training, and which writers "
        "would have told?",
    ),
    "restore": (
        "Coming back",
        "How long until a restarted training goes on, and is what it has what was saved?",
    ),
    "portability": (
        "From one framework to another",
        "Can another framework use what one has saved, and does it compute the same?",
    ),
    "tearing": (
        "Consistency under training",
        "Is a snapshot that is written behind training of the step asked for, and of no other?",
    ),
}
NAMES = tuple(EXPERIMENTS)


def load(name: str) -> Experiment:
    return Experiment(name, *EXPERIMENTS[name], importlib.import_module(f"{__name__}.{name}").cases)


def cases_of(names: list[str], plan: Plan) -> Iterator[Case]:
    """First what is absent: what a model says of measured rows comes after all of them."""
    for name in names:
        found = list(load(name).cases(plan))
        yield from absent(name, plan, found)
        yield from found
