"""The study's restarts in frameworks that have more than torch: its writer, ours, one control."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lab.experiments import determinism
from lab.experiments.determinism import Restart, Subject
from lab.measure.case import Place, Plan
from lab.programs import restart_job as words
from lab.programs.restart_job import BIT_IDENTICAL, DIVERGED

WANTED = {
    "chainer": ("chainer-snapshot-rng", "df", "chainer-snapshot"),
    "tensorflow": ("tf-checkpoint", "df", "tf-checkpoint"),
    "jax": ("orbax", "df", "orbax"),
}
SUBJECTS = {each.framework: each for each in determinism.SUBJECTS}


@pytest.mark.parametrize("framework", WANTED)
def test_a_restart_is_the_same_but_without_the_generators(framework: str, tmp_path: Path) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"LEFT OUT: no {framework} here; `make frameworks` has all")
    own, ours, control = WANTED[framework]
    parts = determinism.KERAS_PARTS if framework == "tensorflow" else words.PARTS
    wanted = (Restart(own, parts), Restart(ours, parts),
              determinism.without(control, words.RNG, parts, quick=True))  # fmt: skip
    rows = rows_of(framework, wanted, tmp_path)
    verdicts = [row["verdict"] for row in rows]
    assert verdicts == [BIT_IDENTICAL, BIT_IDENTICAL, BIT_IDENTICAL, DIVERGED]
    assert rows[3]["missing"] == words.RNG
    assert rows[3]["first_step"] == 11
    assert "must diverge" in rows[3]["reason"]


def rows_of(framework: str, wanted: tuple[Restart, ...], place: Path) -> list[dict[str, Any]]:
    subject = SUBJECTS[framework]
    small = Subject(framework, subject.program, wanted, 1.0, 1.0)
    plan = Plan(True, 7)
    return list(determinism.case(plan, small).work(Place(place, plan)))
