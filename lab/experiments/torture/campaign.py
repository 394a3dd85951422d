"""Every fault for every saver, one after the other. What can't be run has its reason instead."""

import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from lab.faults import changes, damage, moments
from lab.faults.disk import EXT4, XFS, FileSystem, MissingError, keep_mounts_to_ourselves, missing
from lab.faults.nursery import HungError, Nursery, NurseryError
from lab.faults.state import Judge, layout
from lab.faults.subject import Subject, Trial, Trials
from lab.measure.files import agent_place
from lab.writers.menu import WITH_AGENT, Entry
from lab.writers.values import Values

FLIP, KILL, CAPTURED = "flip", "kill", "kill-captured"
AFTER, DURING = "cut-after", "cut-during"
FAULTS = (FLIP, KILL, CAPTURED, AFTER, DURING)
FILE_SYSTEMS = (EXT4, XFS)
FAILURES = (
    NurseryError, HungError, MissingError, damage.NoPlaceError, OSError,
    subprocess.SubprocessError,
)  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Trials a saver; of power cuts on each file system, and of each kind."""

    flips: int
    kills: int
    cuts: int


FULL = Sizes(flips=200, kills=50, cuts=10)
QUICK = Sizes(flips=4, kills=2, cuts=1)


@dataclass(frozen=True)
class Fault:
    name: str
    file_system: FileSystem | None = None

    @property
    def key(self) -> str:
        return f"{self.name} {self.file_system.name}" if self.file_system else self.name

    def run(self, subject: Subject, sizes: Sizes) -> Trials:
        if self.file_system is not None:
            run = moments.run_after if self.name == AFTER else moments.run_during
            return run(subject, self.file_system, sizes.cuts)
        if self.name == FLIP:
            return damage.run(subject, changes.BIT, sizes.flips)
        if self.name == CAPTURED:
            return moments.run_captured(subject, sizes.kills)
        return moments.run(subject, sizes.kills)


@dataclass
class Result:
    """The trials of one fault; `error` says why there are no more."""

    fault: str
    trials: list[Trial] = field(default_factory=list)
    error: str = ""
    left_out: str = ""  # what this machine lacks

    def as_json(self) -> dict[str, Any]:
        return vars(self) | {"trials": [trial.as_json() for trial in self.trials]}


@dataclass
class Row:
    entry: Entry
    versions: dict[str, str] = field(default_factory=dict)
    unavailable: str = ""
    results: list[Result] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        one = self.entry
        found: dict[str, Any] = {"saver": one.name, "title": one.title}
        found |= {"usage": one.usage, "note": one.note}
        found |= {"versions": self.versions, "unavailable": self.unavailable}
        return found | {"results": [result.as_json() for result in self.results]}


@dataclass(frozen=True)
class Campaign:
    entries: tuple[Entry, ...]
    faults: tuple[Fault, ...]
    sizes: Sizes
    seed: int
    left_out: dict[str, str]  # by file system
    place: Path
    progress: Callable[[str], None]

    def run(self) -> Generator[Row, None, None]:
        """A row after each of its faults, too: what there is can be written."""
        values = Values(self.seed)
        for entry in self.entries:
            yield from self._row(entry, Judge(layout(entry.layers), values))

    def _row(self, entry: Entry, judge: Judge) -> Iterator[Row]:
        row = Row(entry, unavailable=entry.absent)
        nursery = Nursery(entry.python, (*entry.imports, entry.module), entry.packages)
        if not row.unavailable:
            with closing(nursery):
                yield from self._filled(row, nursery, judge)
        if row.unavailable:
            self.progress(f"{entry.title}: {row.unavailable}")
        yield row

    def _filled(self, row: Row, nursery: Nursery, judge: Judge) -> Iterator[Row]:
        try:
            nursery.open(self.seed)
        except FAILURES as error:
            row.unavailable = str(error)
            return
        row.versions = nursery.versions
        for fault in self.faults:
            if fault.file_system is not None and row.entry is WITH_AGENT:
                continue  # it outlives the saver, and would keep the disk mounted
            row.results.append(Result(fault.key))
            self._fill(row.results[-1], fault, row.entry, nursery, judge)
            yield row

    def _fill(
        self, result: Result, fault: Fault, entry: Entry, nursery: Nursery, judge: Judge
    ) -> None:
        began = time.perf_counter()
        if fault.file_system is not None:
            result.left_out = self.left_out.get(fault.file_system.name, "")
        if not result.left_out:
            random = Random(f"{self.seed} {entry.name} {fault.key}")
            with tempfile.TemporaryDirectory(prefix="run-", dir=self.place) as place:
                subject = Subject(entry, nursery, judge, random, Path(place))
                self._collect(result, fault, subject)
                shutil.rmtree(agent_place(subject.place / "run"), ignore_errors=True)
        counts = Counter(trial.outcome for trial in result.trials)
        shown = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        why = result.error or (f"LEFT OUT: {result.left_out}" if result.left_out else "")
        seconds = time.perf_counter() - began
        words = " ".join(word for word in (shown, why) if word)
        self.progress(f"{entry.title}, {fault.key}: {words} ({seconds:.0f} s)")

    def _collect(self, result: Result, fault: Fault, subject: Subject) -> None:
        try:
            with closing(fault.run(subject, self.sizes)) as trials:
                for trial in trials:
                    result.trials.append(trial)
        except FAILURES as error:
            result.error = str(error)
            with suppress(HungError):  # the next fault will say so
                subject.nursery.kill()


def faults_of(names: Iterable[str]) -> tuple[Fault, ...]:
    found: list[Fault] = []
    for name in names:
        if name in (AFTER, DURING):
            found += [Fault(name, file_system) for file_system in FILE_SYSTEMS]
        else:
            found.append(Fault(name))
    return tuple(found)


def what_is_missing(faults: tuple[Fault, ...], place: Path) -> dict[str, str]:
    """By file system, where its power can't be cut on this machine."""
    wanted = {one.file_system for one in faults if one.file_system is not None}
    if not wanted:
        return {}
    try:
        keep_mounts_to_ourselves()
    except MissingError as error:
        return {one.name: str(error) for one in wanted}
    reasons = {one.name: missing(one, place / "probe") for one in wanted}
    return {name: reason for name, reason in reasons.items() if reason}
