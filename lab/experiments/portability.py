"""Whether what one framework has saved is of use in another.

The same small network, NT3 with few genes, has the same weights in every framework. Equal outputs:
on the same rows the greatest difference is below a tolerance that follows from
rounding to float32; both are in `detail`.
"""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from lab.measure.case import Case, Place, Plan
from lab.measure.program import FRAMEWORKS, ask, gist, python
from lab.measure.row import Row
from lab.measure.run import failure, status_of_text
from lab.writers.menu import SAVERS

SEED_END = 1 << 32
SECONDS, KERAS_SECONDS = 14.0, 21.0
KERAS_BACKENDS = {"pytorch": "torch", "jax": "jax"}
SECONDS_MAX = 600.0


def cases(plan: Plan) -> Iterator[Case]:
    seed = plan.random("portability").randrange(SEED_END)
    for name, seconds, work in (
        ("all", SECONDS, frameworks), ("keras-backends", KERAS_SECONDS, keras_backends)
    ):  # fmt: skip
        about: Row = {"workload": "NT3 with 228 genes"}
        yield Case("portability", name, seconds, about, partial(work, seed), FRAMEWORKS)


def frameworks(seed: int, place: Place) -> Iterator[Row]:
    """All are in one process."""
    request = {"seed": seed, "directory": str(place.directory), "exporter": exporter()}
    answers = ask(
        python(FRAMEWORKS), "lab.programs.portability", request, place.directory,
        seconds_max=SECONDS_MAX, variables={"KERAS_BACKEND": "tensorflow"},
    )  # fmt: skip
    yield from map(row, answers)


def keras_backends(seed: int, place: Place) -> Iterator[Row]:
    """Keras runs on torch and JAX, too: then its own files are read as they are."""
    program, directory = "lab.programs.portability_keras", place.directory
    request = {"what": "save", "seed": seed, "directory": str(directory)}
    ask(python(FRAMEWORKS), program, request, directory, seconds_max=SECONDS_MAX)
    for framework, backend in KERAS_BACKENDS.items():
        answer = ask(
            python(FRAMEWORKS), program, {**request, "what": "read"}, directory,
            seconds_max=SECONDS_MAX, variables={"KERAS_BACKEND": backend},
        )  # fmt: skip
        for writer, found in answer.items():
            about = {"framework": "tensorflow", "writer": writer, "title": SAVERS[writer].title}
            route = {"reader": framework, "route": "in Keras on it"}
            yield row({**about, **route, **found})


def exporter() -> str:
    """DeepFreeze's own command, of the environment that the study runs in."""
    return str(Path(sys.executable).with_name("deepfreeze"))


def row(answer: dict[str, Any]) -> Row:
    names: Row = {name: answer[name] for name in ("framework", "writer", "title")}
    names["reader"] = f"{answer['reader']}, {answer['route']}"
    if "error" in answer:
        return {**names, **failure(status_of_text(answer["error"]), gist(answer["error"]))}
    found: Row = {**names, "verdict": answer["verdict"]}
    if "reason" in answer:
        found["reason"] = gist(answer["reason"])
    if "about" in answer:
        found["detail"] = json.dumps(answer["about"])
    return found
