"""What is left of the checkpoints where a process, the power or the space of the disk ends.

The moment of a save is a call with which it changes a file, the same ones for the same seed and as
many calls. Which bytes threads have written by then, and what of it a power cut takes, may differ:
so the verdict, the worst of a row's trials, is an exact column, and how often it came is in
`detail`. Where nothing is left to chance, which a full disk is, the counts are exact columns, too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from lab.experiments import faults
from lab.experiments.torture.campaign import AFTER, faults_of, what_is_missing
from lab.faults import calls, moments, shortage
from lab.faults.disk import EXT4, XFS, FileSystem
from lab.faults.moments import Calls
from lab.faults.nursery import Nursery
from lab.faults.shortage import ACKNOWLEDGED, ENDED, HANGS, REFUSED
from lab.faults.state import KEPT, LAYERS, LOST, NOTHING, WRONG
from lab.faults.subject import Subject, Trial, Trials
from lab.measure.case import Case, Place, Plan
from lab.measure.row import LEFT_OUT, Row
from lab.measure.run import failure
from lab.writers.menu import VICTIMS as MENU
from lab.writers.menu import Entry
from lab.writers.tried import QUICK_REASON

CALLS = "calls"  # that can be held
KEEPS, LOSES = "keeps one", "can lose both"  # where a save was not done
KEEPS_NEWEST, LOSES_NEWEST = "keeps the newest", "can lose the newest"  # where it was
TORN = "a state that never was, without an error"
CAME = {
    REFUSED: "an error", ACKNOWLEDGED: "no error", ENDED: "the process dies", HANGS: "it hangs",
}  # fmt: skip
NEXT_SAVE = {True: "the next save works", False: "the next save fails"}
LEFT = {"newer": "the newest there", "older": "the older one left", NOTHING: "both lost"}


@dataclass(frozen=True)
class Sizes:
    """Trials; of power cuts of each kind on each file system."""

    kills: int
    cuts_after: int
    cuts_during: int
    file_systems: tuple[FileSystem, ...]
    layers: int = LAYERS


FULL = Sizes(kills=8, cuts_after=2, cuts_during=2, file_systems=(EXT4, XFS))
QUICK = Sizes(kills=6, cuts_after=1, cuts_during=0, file_systems=(EXT4,))
QUICK_SLOW = replace(QUICK, kills=4, layers=4)
# Who saves as another of the menu does, but for one thing: that is seen in a study in full.
QUICK_LEFT_OUT = (
    "df-latency", "torch-save-renamed", "torch-save-legacy", "orbax-forced",
    "tensorflow-saved-model", "keras-weights-steps", "keras-legacy", "chainer-thread",
    "chainer-process", "chainer-thread-queue", "chainer-process-queue", "chainer-npz",
    "chainer-hdf5",
)  # fmt: skip
# Or a save: counted, held at calls, on a file system that is mounted and taken away.
LOAD_SECONDS = {"pytorch": 0.14, "chainer": 0.19, "jax": 0.35, "tensorflow": 0.45}
SLOW = ("tensorflow", "jax", "chainer")  # so that fewer trials, and tensors, show as much


@dataclass(frozen=True)
class Fault:
    name: str
    trials: Callable[[Subject], Trials]
    row: Callable[[list[Trial]], Row]
    loads: int  # and saves, about
    needs: tuple[str, ...] = ()  # of the machine


@dataclass
class Machine:
    """What it lacks; asked before the first process is started, which is to see the mounts."""

    missing: dict[str, str] = field(default_factory=dict)  # by file system, or CALLS

    def ask(self, place: Place) -> None:
        self.missing = what_is_missing(faults_of([AFTER]), place.directory)
        if why := calls.missing():
            self.missing = {**self.missing, CALLS: why}

    def lacks(self, needs: tuple[str, ...]) -> str:
        """The first reason; empty where there is none."""
        return next((self.missing[one] for one in needs if one in self.missing), "")


def cases(plan: Plan) -> Iterator[Case]:
    machine = Machine()
    omitted = QUICK_LEFT_OUT if plan.quick else ()
    entries = tuple(one for one in MENU if one.name not in omitted)
    shared = faults.ground("crash", plan, entries, machine.ask)
    for entry in entries:
        yield one_case(shared, machine, entry, sizes_of(entry, plan.quick))
    yield from faults.left_out("crash", dict.fromkeys(omitted, QUICK_REASON))
    yield from faults.writers("crash")


def sizes_of(entry: Entry, quick: bool) -> Sizes:
    if not quick:
        return FULL
    return QUICK_SLOW if entry.framework in SLOW else QUICK


def one_case(shared: faults.Ground, machine: Machine, entry: Entry, sizes: Sizes) -> Case:
    planned = tuple(faults_with(sizes))

    def work(saved: Entry, nursery: Nursery, place: Place) -> Iterator[Row]:
        whole = shared.subject(saved, nursery, place.directory)
        whole.save(place.directory / "run")  # what fails undisturbed has one row
        whole.check_undamaged(place.directory / "run")
        for fault in planned:
            missing = machine.lacks(fault.needs)
            if missing:
                yield {"fault": fault.name, **failure(LEFT_OUT, missing)}
                continue
            subject = shared.subject(saved, nursery, place.directory, fault.name)
            yield faults.attempted(nursery, fault.name, partial(row, fault, subject))
        for name in not_with(sizes):
            yield {"fault": name, **failure(LEFT_OUT, QUICK_REASON)}

    seconds = faults.seconds_of(entry, sum(fault.loads for fault in planned), LOAD_SECONDS)
    return faults.case(shared, entry, sizes.layers, seconds, work)


def row(fault: Fault, subject: Subject) -> Row:
    return fault.row(list(fault.trials(subject)))


def faults_with(sizes: Sizes) -> Iterator[Fault]:
    number = sizes.kills
    killing = partial(moments.run, count=number, measure=Calls.measure)
    yield Fault("killed in the save", killing, interrupted, 3 * number + 2, (CALLS,))
    for one in sizes.file_systems:
        number = sizes.cuts_after
        after = partial(moments.run_after, file_system=one, count=number)
        name = f"power cut after the save, {one.name}"
        yield Fault(name, after, done, 2 + 6 * number, (one.name,))
    for one in sizes.file_systems if sizes.cuts_during else ():
        number = sizes.cuts_during
        during = partial(moments.run_during, file_system=one, count=number, measure=Calls.measure)
        name = f"power cut in the save, {one.name}"
        yield Fault(name, during, interrupted, 4 + 6 * number, (one.name, CALLS))
    yield Fault("no space left in the save", partial(shortage.run, count=1), full, 5, (XFS.name,))


def not_with(sizes: Sizes) -> list[str]:
    """The faults of a study in full that one with --quick has not."""
    tried = {fault.name for fault in faults_with(sizes)}
    return [fault.name for fault in faults_with(FULL) if fault.name not in tried]


def interrupted(trials: list[Trial]) -> Row:
    return by_chance(trials, KEEPS, LOSES)


def done(trials: list[Trial]) -> Row:
    return by_chance(trials, KEEPS_NEWEST, LOSES_NEWEST)


def by_chance(trials: list[Trial], keeps: str, loses: str) -> Row:
    """The worst that happened to any. Which one was left, and how often, is not part of it."""
    found = faults.counts(trials)
    verdict = loses if found[WRONG] or found[LOST] else keeps
    told: Row = {
        "verdict": verdict,
        "trials": len(trials),
        "detail": faults.Detail(trials).as_json(),
    }
    if found[WRONG]:  # by chance, too: whether what is there can be loaded
        told["reason"] = f"{found[WRONG]} of {len(trials)} loads: {TORN}"
    return told


def full(trials: list[Trial]) -> Row:
    """The only trial, in which nothing is left to chance."""
    (trial,) = trials
    came, later = trial.detail["came"], trial.detail["later"]
    words = (CAME[came], LEFT.get(trial.detail["left"], TORN), NEXT_SAVE[later])
    said = {name: trial.detail[name] for name in ("refusal", "later_refusal")}
    return {
        "verdict": "; ".join(words), "trials": 1, "found": int(came == REFUSED),
        "silent": int(came == ACKNOWLEDGED and trial.outcome != KEPT),
        "usable": int(trial.detail["left"] in LEFT and trial.detail["left"] != NOTHING),
        "lost": int(trial.outcome == LOST), "mixed": int(trial.outcome == WRONG),
        "crashed": int(came in (ENDED, HANGS)), "reason": trial.detail["refusal"],
        "detail": faults.Detail(trials, said).as_json(),
    }  # fmt: skip
