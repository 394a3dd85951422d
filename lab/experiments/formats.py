"""What files a checkpoint is made of: one state by every writer, in two processes."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from lab.experiments.cost import layout_of
from lab.measure.case import Case, Place, Plan, refusing
from lab.measure.program import FRAMEWORKS, OWN, PEERS, ask, gist, python
from lab.measure.row import Row
from lab.measure.run import failure, status_of_text
from lab.networks.asked import ABSENT, parameters
from lab.writers.menu import Entry
from lab.writers.tried import COMPRESSED, SAME_LOAD, about, by_environment, chosen

QUICK, FULL = ("tiny",), ("tiny", "resnet50")
# Saved once, by who writes other files than the rest: for sizes.
FURTHER = ("mlp", "combo", "uno", "p1b1-6k", "resnet152", "nt3")
HASH_SEEDS = ("1", "2")  # of Python, for sets and dicts of strings
NOT_FURTHER = (
    "of {workload} only by writers that compress little and write other files than the rest, and "
    "once: whether the same bytes come again is told of resnet50"
)
# Where threads meet decides how many files Orbax writes, and how large; the random number in
# a SavedModel's fingerprint takes a byte less now and then.
SIZE_VARIES = ("orbax", "tensorflow-saved-model")
SECONDS = {  # of a process or two of each environment
    "tiny": {OWN: 9.0, PEERS: 13.0, FRAMEWORKS: 19.0},
    "resnet50": {OWN: 26.0, PEERS: 22.0, FRAMEWORKS: 138.0},
    "mlp": {OWN: 8.0, PEERS: 6.0, FRAMEWORKS: 13.0},
    "combo": {OWN: 10.0, PEERS: 7.0, FRAMEWORKS: 18.0},
    "uno": {OWN: 11.0, PEERS: 7.0, FRAMEWORKS: 20.0},
    "p1b1-6k": {OWN: 11.0, PEERS: 8.0, FRAMEWORKS: 22.0},
    "resnet152": {OWN: 16.0, PEERS: 10.0, FRAMEWORKS: 40.0},
    "nt3": {OWN: 16.0, PEERS: 11.0, FRAMEWORKS: 45.0},
}


def measured(
    entries: list[Entry], workload: str, environment: str, seeds: tuple[str, ...], place: Place
) -> Iterator[Row]:
    """By two processes, which order what is in a set otherwise: the same bytes are of the same."""
    path, layout = layout_of(workload, place)
    answers = [saved(entries, path, environment, place, seed) for seed in seeds]
    known: Row = {"tensors": len(layout.tensors), "state_bytes": layout.nbytes}
    for entry, *found in zip(entries, *answers, strict=True):
        yield {**about(entry, workload), **known, **told(entry, *found)}


def saved(
    entries: list[Entry], path: Path, environment: str, place: Place, hash_seed: str
) -> list[dict[str, Any]]:
    directory = place.directory / f"checkpoints-{hash_seed}"
    directory.mkdir()
    request = {
        "writers": [asdict(entry) for entry in entries],
        "layout": str(path),
        "seed": place.plan.seed,
        "directory": str(directory),
    }
    found: list[dict[str, Any]] = ask(
        python(environment), "lab.programs.formats", request, place.directory,
        variables={"PYTHONHASHSEED": hash_seed},
    )  # fmt: skip
    shutil.rmtree(directory)
    return found


def told(entry: Entry, first: dict[str, Any], *again: dict[str, Any]) -> Row:
    error = next((one["error"] for one in (first, *again) if one.get("error")), "")
    if error:
        return failure(status_of_text(error), gist(error))
    known: Row = {"container": first["container"]}
    if again:
        known["reproducible"] = all(one["digests"] == first["digests"] for one in again)
    if entry.name.startswith(SIZE_VARIES):
        return known | {"varying_bytes": first["file_bytes"]}
    return known | {"files": first["files"], "file_bytes": first["file_bytes"]}


def cases(plan: Plan) -> Iterator[Case]:
    for workload in QUICK if plan.quick else FULL:
        yield from of_workload(workload, chosen(quick=False), HASH_SEEDS)
    for workload in () if plan.quick else FURTHER:
        few = [entry for entry in chosen(quick=True) if entry.name not in (*SAME_LOAD, *COMPRESSED)]
        yield from of_workload(workload, few, HASH_SEEDS[:1])
        about: Row = {"workload": workload, "title": "the other writers", **parameters(workload)}
        why = refusing(NOT_FURTHER.format(workload=workload))
        yield Case("formats", f"{ABSENT}writers of {workload}", 0.0, about, why)


def of_workload(workload: str, writers: Sequence[Entry], seeds: tuple[str, ...]) -> Iterator[Case]:
    """One process for all writers of an environment: it is its start that takes the time."""
    for environment, entries in by_environment(writers).items():
        yield Case(
            "formats",
            f"{workload}/{environment or 'torch'}",
            SECONDS[workload][environment],
            {"workload": workload},
            partial(measured, entries, workload, environment, seeds),
            environment,
        )
