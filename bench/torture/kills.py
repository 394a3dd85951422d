"""SIGKILL at a random moment of a save over an older checkpoint; then a load.

Each trial has a share of the save's duration for its moment, so that few meet all of it.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.torture.nursery import NurseryError
from bench.torture.outcomes import left, of_interrupted
from bench.torture.subject import DRAWS_MAX, Subject, Trial, Trials, described


def run(subject: Subject, count: int) -> Trials:
    directory = subject.place / "run"
    seconds = subject.save_seconds(directory)
    for index in range(count):
        share = subject.random.uniform(index, index + 1) / count
        yield one(subject, directory, seconds, share * seconds)


def one(subject: Subject, directory: Path, save_seconds: float, moment: float) -> Trial:
    """A save that was done before the kill came is no trial: any other moment is drawn."""
    for draws in range(1, DRAWS_MAX + 1):
        seconds = moment if draws == 1 else subject.random.uniform(0, save_seconds)
        if killed_in_save(subject, directory, seconds):
            first, older = subject.load_all(directory)
            detail = {"seconds": seconds, "draws": draws, "left": left(first, older)}
            return Trial(of_interrupted(first, older), detail | described(first, older))
    raise NurseryError(f"{DRAWS_MAX} saves were done before their kill")


def killed_in_save(subject: Subject, directory: Path, seconds: float) -> bool:
    subject.start_save(directory, held=True)
    subject.wait_for("saving")
    time.sleep(seconds)
    return subject.kill_before_done()
