"""The rows of portability; what compares the networks is in tests/frameworks."""

import json
from pathlib import Path

from lab.experiments import portability
from lab.measure.case import Plan
from lab.measure.program import FRAMEWORKS
from lab.measure.row import check

ASKED = {"framework": "pytorch", "writer": "torch-save", "title": "torch.save",
         "reader": "jax", "route": "by itself"}  # fmt: skip


def shared() -> dict[str, str]:
    return {"experiment": "portability"}


def test_a_pair_is_a_row() -> None:
    about = {"difference": 1e-7, "tolerance": 1e-6}
    row = portability.row({**ASKED, "verdict": "equal outputs", "about": about})
    assert (row["reader"], row["verdict"]) == ("jax, by itself", "equal outputs")
    assert json.loads(str(row["detail"])) == about


def test_a_pair_that_fails_has_its_reason() -> None:
    row = check({**shared(), **portability.row({**ASKED, "error": "KeyError: 'conv1'"})})
    assert (row["status"], row["reason"]) == ("failed", "KeyError: 'conv1'")
    row = portability.row({**ASKED, "error": "ModuleNotFoundError: No module named 'flax'"})
    assert row["status"] == "not installed"


def test_all_cases_need_the_frameworks() -> None:
    found = {case.name: case.environment for case in portability.cases(Plan(quick=True, seed=7))}
    assert found == {"all": FRAMEWORKS, "keras-backends": FRAMEWORKS}
    assert Path(portability.exporter()).name == "deepfreeze"
