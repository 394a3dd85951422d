"""SIGKILL at a random moment of a save over an older checkpoint; then a load.

Each trial has a share of the save for its moment, so that few meet all of it.
"""

from __future__ import annotations

from pathlib import Path

from lab.faults.moments import Clock, Measure, Moments
from lab.faults.nursery import NurseryError
from lab.faults.outcomes import left, of_interrupted
from lab.faults.subject import DRAWS_MAX, Subject, Trial, Trials, described


def run(subject: Subject, count: int, measure: Measure = Clock.measure) -> Trials:
    directory = subject.place / "run"
    moments = measure(subject, directory)
    for index in range(count):
        share = subject.random.uniform(index, index + 1) / count
        yield one(subject, directory, moments, share)


def one(subject: Subject, directory: Path, moments: Moments, share: float) -> Trial:
    """A save that was done before the kill came is no trial: any other moment is drawn."""
    for draws in range(1, DRAWS_MAX + 1):
        reached = moments.reach(directory, share if draws == 1 else subject.random.random())
        if subject.kill_before_done() and reached is not None:
            first, older = subject.load_all(directory)
            detail = {**reached, "draws": draws, "left": left(first, older)}
            return Trial(of_interrupted(first, older), detail | described(first, older))
    raise NurseryError(f"{DRAWS_MAX} saves were done before their kill")
