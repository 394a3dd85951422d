"""Whether a load notices that the files are not those that were saved."""

from collections.abc import Iterator
from functools import partial
from random import Random

from lab.experiments import faults
from lab.faults import changes, damage
from lab.faults.nursery import Nursery
from lab.faults.state import DIED, FOUND, HARMLESS, HUNG, SILENT
from lab.measure.case import Case, Place, Plan
from lab.measure.row import Row
from lab.writers.menu import VICTIMS as MENU
from lab.writers.menu import Entry

LAYERS = 1  # about 450 KB in eight tensors
QUICK_TRIALS, TRIALS = 2, 8
# Where threads meet decides which file, and which place in it, Orbax writes an array to. So a seed
# finds other places each time: more of them are tried, and how often each end came is no column.
NEVER_THE_SAME = {"orbax", "orbax-forced"}
QUICK_TRIALS_THERE, TRIALS_THERE = 10, 12
# What writes the same files as another writer of the menu: once is enough where time is short.
SAME_FILES = {
    "df-latency", "torch-save-steps", "torch-save-renamed", "torch-save-fsync", "dcp-async",
    "orbax-forced", "keras-weights-steps", "chainer-thread", "chainer-process",
    "chainer-thread-queue", "chainer-process-queue",
}  # fmt: skip
SAME_HERE = {"dcp-few"}  # dcp, with as many layers as all have here
HERE_REASON = "it is dcp.save, which is tried, with as many tensors as all have here"
QUICK_REASON = "another writer of these writes the same files: left out with --quick"


def cases(plan: Plan) -> Iterator[Case]:
    reasons = dict.fromkeys(SAME_HERE, HERE_REASON)
    if plan.quick:
        reasons |= dict.fromkeys(SAME_FILES, QUICK_REASON)
    entries = tuple(one for one in MENU if one.name not in reasons)
    shared = faults.ground("corruption", plan, entries)
    for entry in entries:
        yield one_case(shared, entry, trials_of(entry, plan.quick))
    yield from faults.left_out("corruption", reasons)
    yield from faults.writers("corruption")


def trials_of(entry: Entry, quick: bool) -> int:
    if entry.name in NEVER_THE_SAME:
        return QUICK_TRIALS_THERE if quick else TRIALS_THERE
    return QUICK_TRIALS if quick else TRIALS


def one_case(shared: faults.Ground, entry: Entry, trials: int) -> Case:
    def work(saved: Entry, nursery: Nursery, place: Place) -> Iterator[Row]:
        subject = shared.subject(saved, nursery, place.directory)
        same = entry.name not in NEVER_THE_SAME
        with damage.specimen(subject) as specimen:
            specimen.check()
            for kind in changes.KINDS:
                random = shared.random(entry, kind)
                yield faults.attempted(
                    nursery, kind, partial(row, specimen, kind, random, trials, same)
                )
            specimen.check()

    seconds = faults.seconds_of(entry, loads=len(changes.KINDS) * trials + 4)
    return faults.case(shared, entry, LAYERS, seconds, work)


def row(specimen: damage.Specimen, kind: str, random: Random, count: int, same: bool) -> Row:
    trials = [specimen.trial(kind, random) for _ in range(count)]
    found = faults.counts(trials)
    known: Row = {
        "verdict": verdict(set(found)), "trials": found.total(),
        "detail": faults.Detail(trials).as_json(),
    }  # fmt: skip
    if not same:
        return known
    return known | {
        "found": sum(found[one] for one in FOUND), "silent": found[SILENT],
        "harmless": found[HARMLESS], "crashed": found[DIED] + found[HUNG],
    }  # fmt: skip


def verdict(outcomes: set[str]) -> str:
    """The worst that happened."""
    if SILENT in outcomes:
        return "silent"
    if outcomes & {DIED, HUNG}:
        return "the load crashes or hangs"
    return "found" if outcomes & set(FOUND) else "harmless"
