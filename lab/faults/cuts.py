"""Power cuts: right after a save has said that it is done, or at a random moment of it.

Of each kind of cut each trial has a share of the save for its moment, so that few meet all of it.
"""

from __future__ import annotations

from pathlib import Path

from lab.faults.disk import Cut, Disk, FileSystem, disk
from lab.faults.moments import Clock, Measure, Moments
from lab.faults.nursery import NurseryError
from lab.faults.outcomes import left, of_acknowledged, of_interrupted
from lab.faults.subject import DRAWS_MAX, Subject, Trial, Trials, described


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
    """Cuts the power and brings it back; whoever saved is gone before."""
    one.cut_power(cut)
    subject.nursery.kill()
    one.unmount()
    one.mount()
