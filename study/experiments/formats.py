"""What files a checkpoint is made of: one small state by every writer, twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
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
SECONDS = {"tiny": 20.0, "combo": 60.0, "resnet50": 120.0}


def measured(entries: list[Entry], workload: str, environment: str, place: Place) -> Iterator[Row]:
    path, layout = layout_of(workload, place)
    directory = place.directory / "checkpoints"
    directory.mkdir()
    request = {
        "writers": [asdict(entry) for entry in entries],
        "layout": str(path),
        "seed": place.plan.seed,
        "directory": str(directory),
    }
    answers = ask(python(environment), "study.programs.formats", request, place.directory)
    known: Row = {"tensors": len(layout.tensors), "state_bytes": layout.nbytes}
    for entry, answer in zip(entries, answers, strict=True):
        yield {**about(entry, workload), **known, **told(answer)}


def told(answer: dict[str, Any]) -> Row:
    if "error" in answer:
        return failure(status_of_text(answer["error"]), gist(answer["error"]))
    return {name: answer[name] for name in ("files", "file_bytes", "container", "reproducible")}


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
