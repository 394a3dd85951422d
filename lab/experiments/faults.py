"""What the experiments with faults share: whose checkpoints, and the processes that save and load.

The faults and the judge are those of lab/faults.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import Random

from lab.experiments.torture.campaign import FAILURES
from lab.faults.nursery import HungError, Nursery
from lab.faults.state import LOST, WRONG, Judge, layout
from lab.faults.subject import Subject, Trial
from lab.measure.case import Case, Place, Plan, ToolError, refusing
from lab.measure.row import Row
from lab.measure.run import failure, status_of_text
from lab.networks.asked import ABSENT
from lab.writers.menu import SAVERS, Entry
from lab.writers.menu import VICTIMS as MENU
from lab.writers.values import Values

SEED_END = 1 << 32
LOAD_SECONDS = {"pytorch": 0.06, "chainer": 0.03, "jax": 0.28, "tensorflow": 0.24}  # or a save
Key = tuple[Path, tuple[str, ...], str]  # of the process that has imported what an entry needs


def key_of(entry: Entry) -> Key:
    return entry.python, entry.imports, entry.module


@dataclass
class Nurseries:
    """One process at a time that has imported a framework, for all entries that follow in turn."""

    seed: int
    entries: tuple[Entry, ...]
    before: Callable[[Place], object]  # each is started
    _key: Key | None = None
    _nursery: Nursery | None = None

    @contextmanager
    def of(self, entry: Entry, place: Place) -> Iterator[Nursery]:
        """ToolError where it can't be started. It ends after the last entry that needs it."""
        if self._nursery is None or self._key != key_of(entry):
            self.close()
            self.before(place)
            self._open(entry)
        assert self._nursery is not None
        try:
            yield self._nursery
        finally:
            alike = [one for one in self.entries if key_of(one) == key_of(entry)]
            if entry.name == alike[-1].name:
                self.close()

    def close(self) -> None:
        if self._nursery is not None:
            self._nursery.close()
        self._nursery = None

    def _open(self, entry: Entry) -> None:
        alike = [one for one in self.entries if key_of(one) == key_of(entry)]
        packages = tuple(dict.fromkeys(name for one in alike for name in one.packages))
        self._key = key_of(entry)
        self._nursery = Nursery(entry.python, (*entry.imports, entry.module), packages)
        try:
            self._nursery.open(self.seed)
        except FAILURES as error:
            self.close()
            raise ToolError(str(error)) from error


@dataclass(frozen=True)
class Ground:
    """One experiment of one plan."""

    experiment: str
    plan: Plan
    nurseries: Nurseries

    @cached_property
    def values(self) -> Values:
        return Values(self.nurseries.seed)

    def random(self, entry: Entry, *words: object) -> Random:
        return self.plan.random(self.experiment, entry.name, *words)

    def subject(self, entry: Entry, nursery: Nursery, place: Path, fault: str = "") -> Subject:
        judge = Judge(layout(entry.layers), self.values)
        return Subject(entry, nursery, judge, self.random(entry, fault), place)


Work = Callable[[Entry, Nursery, Place], Iterable[Row]]


def no_preparation(_: Place) -> None:
    """Nothing is to be done before the first process is started."""


def ground(
    experiment: str,
    plan: Plan,
    entries: tuple[Entry, ...],
    before: Callable[[Place], object] = no_preparation,
) -> Ground:
    seed = plan.random(experiment, "contents").randrange(SEED_END)
    return Ground(experiment, plan, Nurseries(seed, entries, before))


def case(one: Ground, entry: Entry, layers: int, seconds: float, work: Work) -> Case:
    """Of a network of so many layers, or of fewer where the entry has fewer."""
    saved = replace(entry, layers=min(entry.layers, layers))
    state = layout(saved.layers)

    def carry_out(place: Place) -> Iterator[Row]:
        with one.nurseries.of(entry, place) as nursery:
            known: Row = {"versions": versions(entry, nursery)}
            try:
                for row in work(saved, nursery, place):
                    yield known | row
            except FAILURES as error:  # without any fault
                with suppress(HungError):
                    nursery.kill()
                raise ToolError(str(error)) from error

    framework = entry.framework
    about: Row = {
        "framework": framework, "writer": entry.name, "title": entry.title,
        "workload": f"{saved.layers} layers with Adam",
        "state_bytes": state.nbytes, "tensors": len(state.tensors),
    }  # fmt: skip
    name = f"{framework}/{entry.name}"
    return Case(one.experiment, name, seconds, about, carry_out, entry.environment)


def left_out(experiment: str, reasons: Mapping[str, str]) -> Iterator[Case]:
    """A row for each writer of the menu that has a reason."""
    for entry in MENU:
        if entry.name in reasons:
            about: Row = {
                "framework": entry.framework, "writer": entry.name, "title": entry.title
            }  # fmt: skip
            why = refusing(reasons[entry.name])
            yield Case(experiment, f"left out {entry.name}", 0.01, about, why)


def versions(entry: Entry, nursery: Nursery) -> str:
    found = nursery.versions
    return ", ".join(f"{name} {found[name]}" for name in entry.packages if name in found)


def attempted(nursery: Nursery, fault: str, work: Callable[[], Row]) -> Row:
    """What one fault gave; a row with the reason where it could not be tried."""
    try:
        return {"fault": fault, **work()}
    except FAILURES as error:
        with suppress(HungError):  # the next fault will say so
            nursery.kill()
        return {"fault": fault, **failure(status_of_text(str(error)), str(error))}


def counts(trials: list[Trial]) -> Counter[str]:
    return Counter(trial.outcome for trial in trials)


@dataclass(frozen=True)
class Detail:
    """What moments and keys decide, and so is no column: how the trials came out, by name."""

    trials: list[Trial]
    more: dict[str, object] = field(default_factory=dict)

    def as_json(self) -> str:
        left = Counter(trial.detail["left"] for trial in self.trials if "left" in trial.detail)
        errors = Counter(trial.detail["error"].partition(":")[0] for trial in self.trials
                         if "error" in trial.detail)  # fmt: skip
        calls = {trial.detail["before"] for trial in self.trials
                 if trial.outcome in (LOST, WRONG) and "before" in trial.detail}  # fmt: skip
        found = {"outcomes": counts(self.trials), "left": left, "errors": errors,
                 "lost_before": sorted(calls), **self.more}  # fmt: skip
        return json.dumps({name: value for name, value in found.items() if value})


def seconds_of(entry: Entry, loads: int, each: Mapping[str, float] = LOAD_SECONDS) -> float:
    """About; loads and saves cost much the same: a forked process with a small state."""
    return loads * each[entry.framework]


# Writers and questions that the experiments with faults do not try, each with the reason.


SECONDS = 0.01
AS_SAVED_HERE = "saves as {other} does, which is tried: no victim of the torture is made of it"
BESIDE = (
    "its files are those of {other}, which is tried; what saving beside the training adds is not"
)
WRITERS = {  # of lab/writers that no victim of the torture is made of
    "df-quarter": AS_SAVED_HERE.format(other="DeepFreeze, with a smaller arena,"),
    "df-jax-latency": BESIDE.format(other="DeepFreeze, JAX"),
    "df-tensorflow-latency": BESIDE.format(other="DeepFreeze, TensorFlow"),
    "df-keras-latency": BESIDE.format(other="DeepFreeze, Keras"),
    "df-chainer-latency": BESIDE.format(other="DeepFreeze, Chainer"),
    "dcp-async-reused": BESIDE.format(other="dcp.async_save"),
    "torchsnapshot-async": BESIDE.format(other="torchsnapshot"),
    "torch-checkpointing": BESIDE.format(other="torch_checkpointing sync, buffered"),
    "orbax-async": "Orbax CheckpointManager, which is tried, saves by it: as it comes, and awaited",
    "chainer-simple": "Chainer snapshot, which is tried, saves by it as it comes",
    "fastpersist": "its extension takes minutes to compile",
}


def writers(experiment: str) -> Iterator[Case]:
    for name, why in WRITERS.items():
        entry = SAVERS[name]
        about: Row = {"framework": entry.framework, "writer": name, "title": entry.title}
        yield Case(experiment, f"left out {name}", SECONDS, about, refusing(why))


def questions(experiment: str, asked: dict[str, str]) -> Iterator[Case]:
    """Cases that concern no single writer: they have no line in a table."""
    for title, why in asked.items():
        about: Row = {"component": title, "title": title}
        yield Case(experiment, ABSENT + title, SECONDS, about, refusing(why))
