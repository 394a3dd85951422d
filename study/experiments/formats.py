"""What files a checkpoint is made of: one state by every writer, in two processes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from bench.storage.jobs import gist
from bench.storage.menu import Entry
from study.case import Case, Experiment, Place, Plan
from study.environments import python
from study.experiments.cost import layout_of
from study.program import ask
from study.row import Row
from study.run import failure, status_of_text
from study.writers import about, by_environment, chosen

QUICK, FULL = ("tiny",), ("tiny", "combo", "resnet50")
HASH_SEEDS = ("1", "2")  # of Python, for sets and dicts of strings
# Where threads meet decides how many files Orbax writes, and how large; the random number in
# a SavedModel's fingerprint takes a byte less now and then.
SIZE_VARIES = ("orbax", "tensorflow-saved-model")
SECONDS = {"tiny": 20.0, "combo": 60.0, "resnet50": 120.0}


def measured(entries: list[Entry], workload: str, environment: str, place: Place) -> Iterator[Row]:
    """By two processes, which order what is in a set otherwise: the same bytes are of the same."""
    path, layout = layout_of(workload, place)
    answers = [saved(entries, path, environment, place, seed) for seed in HASH_SEEDS]
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
        python(environment), "study.programs.formats", request, place.directory,
        variables={"PYTHONHASHSEED": hash_seed},
    )  # fmt: skip
    shutil.rmtree(directory)
    return found


def told(entry: Entry, first: dict[str, Any], again: dict[str, Any]) -> Row:
    error = first.get("error") or again.get("error")
    if error:
        return failure(status_of_text(error), gist(error))
    known: Row = {
        "container": first["container"], "reproducible": first["digests"] == again["digests"],
    }  # fmt: skip
    if entry.name.startswith(SIZE_VARIES):
        return known | {"varying_bytes": first["file_bytes"]}
    return known | {"files": first["files"], "file_bytes": first["file_bytes"]}


def cases(plan: Plan) -> Iterator[Case]:
    """One process for all writers of an environment: it is its start that takes the time."""
    for workload in QUICK if plan.quick else FULL:
        for environment, entries in by_environment(chosen(quick=False)).items():
            yield Case(
                "formats",
                f"{workload}/{environment or 'torch'}",
                SECONDS[workload],
                {"workload": workload},
                partial(measured, entries, workload, environment),
                environment,
            )


EXPERIMENT = Experiment(
    "formats",
    "File formats and sizes",
    "What is a checkpoint on disk, how large is it, and is it the same for the same state?",
    cases,
)
