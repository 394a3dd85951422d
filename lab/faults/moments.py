"""At which moment of a save a fault comes: by the clock, or at a call that changes a file.

By the clock, a part of the save is met as often as it takes long, and what is met differs from
run to run. At a call, the same part is met again wherever a saver makes the same calls again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lab.faults.disk import Cut, Disk, FileSystem, disk
from lab.faults.nursery import NurseryError
from lab.faults.state import left, of_acknowledged, of_interrupted
from lab.faults.subject import DRAWS_MAX, Subject, Trial, Trials, described

Detail = dict[str, Any]


class Moments(Protocol):
    def reach(self, directory: Path, share: float, **options: Any) -> Detail | None:
        """Starts a save and returns where so much of it, of 1, is done; its process is not ended.

        None where it was all done before; by the clock, it may be so in any case.
        """


Measure = Callable[[Subject, Path], Moments]  # by undisturbed saves, in that directory


@dataclass(frozen=True)
class Clock:
    subject: Subject
    seconds: float  # of a save

    @classmethod
    def measure(cls, subject: Subject, directory: Path) -> Clock:
        return cls(subject, subject.save_seconds(directory))

    def reach(self, directory: Path, share: float, **options: Any) -> Detail | None:
        seconds = share * self.seconds
        self.subject.start_save(directory, held=True, **options)
        self.subject.wait_for("saving")
        time.sleep(seconds)
        return {"seconds": seconds}


@dataclass(frozen=True)
class Calls:
    subject: Subject
    count: int  # in a save, its end included

    @classmethod
    def measure(cls, subject: Subject, directory: Path) -> Calls:
        return cls(subject, subject.save_calls(directory))

    def reach(self, directory: Path, share: float, **options: Any) -> Detail | None:
        number = 1 + int(share * self.count)
        options |= {"held": True, "watched": True, "hold_at": number}
        self.subject.start_save(directory, **options)
        self.subject.wait_for("saving")
        call = self.subject.held_call()
        return None if call is None else {"call": number, "of": self.count, "before": call}


# SIGKILL at a random moment of a save over an older checkpoint; then a load.


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


# SIGKILL as soon as training may go on: all that is still to be written is in the process.


def run_captured(subject: Subject, count: int) -> Trials:
    directory = subject.place / "run"
    for _ in range(count):
        subject.start_save(directory, captured=True, held=True)
        subject.wait_for("captured")
        subject.nursery.kill()
        first, older = subject.load_all(directory)
        detail = {"left": left(first, older)}
        yield Trial(of_acknowledged(first, older), detail | described(first, older))


# Power cuts: right after a save has said that it is done, or at a random moment of it.


def run_after(subject: Subject, file_system: FileSystem, count: int) -> Trials:
    """`count` of each kind of cut."""
    with disk(file_system, subject.place / "disk") as one:
        check_without_cut(subject, one)
        for index in range(count * len(Cut)):
            yield after(subject, one, kind(index))


def run_during(
    subject: Subject, file_system: FileSystem, count: int, measure: Measure = Clock.measure
) -> Trials:
    with disk(file_system, subject.place / "disk") as one:
        moments = measure(subject, run_of(one))
        check_without_cut(subject, one)
        for index in range(count * len(Cut)):
            turn = index // len(Cut)
            share = subject.random.uniform(turn, turn + 1) / count
            yield during(subject, one, kind(index), moments, share)


def kind(index: int) -> Cut:
    return list(Cut)[index % len(Cut)]


def run_of(one: Disk) -> Path:
    return one.place / "run"


def check_without_cut(subject: Subject, one: Disk) -> None:
    """Saved, unmounted, mounted, loaded."""
    subject.start_save(run_of(one), synced=True, held=True)
    subject.wait_for("saved")
    subject.nursery.kill()
    one.unmount()
    one.mount()
    subject.check_undamaged(run_of(one))


def after(subject: Subject, one: Disk, cut: Cut) -> Trial:
    subject.start_save(run_of(one), synced=True, held=True)
    subject.wait_for("saved")
    recover(subject, one, cut)
    first, older = subject.load_all(run_of(one))
    detail = {"cut": cut.name, "left": left(first, older)}
    return Trial(of_acknowledged(first, older), detail | described(first, older))


def during(subject: Subject, one: Disk, cut: Cut, moments: Moments, share: float) -> Trial:
    """A save that was done before the cut came is no trial: any other moment is drawn."""
    for draws in range(1, DRAWS_MAX + 1):
        drawn = share if draws == 1 else subject.random.random()
        reached = moments.reach(run_of(one), drawn, synced=True)
        if reached is not None and not subject.is_done():
            recover(subject, one, cut)
            first, older = subject.load_all(run_of(one))
            detail = {"cut": cut.name, **reached, "draws": draws, "left": left(first, older)}
            return Trial(of_interrupted(first, older), detail | described(first, older))
        subject.kill_before_done()
    raise NurseryError(f"{DRAWS_MAX} saves were done before their cut")


def recover(subject: Subject, one: Disk, cut: Cut) -> None:
    """Cuts the power and brings it back; the saving process is gone before."""
    one.cut_power(cut)
    subject.nursery.kill()
    one.unmount()
    one.mount()
