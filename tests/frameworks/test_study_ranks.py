"""The study's frequency and scale, beyond torch: every writer of each framework saves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("tensorflow", reason="of build/frameworks-venv")

from lab.experiments import frequency, scale
from lab.measure.case import Case, Plan
from lab.measure.program import Environments
from lab.measure.row import OK, Row, check
from lab.measure.run import rows_of
from lab.tests.conftest import one_thread  # noqa: F401 (a fixture that is used by itself)

PLAN = Plan(quick=True, seed=3)


def carried_out(case: Case, place: Path) -> list[Row]:
    found = [check(row) for row in rows_of(case, Environments(), place, PLAN)]
    assert {row["status"] for row in found} == {OK}, found
    assert list(place.iterdir()) == []
    return found


@pytest.mark.parametrize("framework", ["chainer", "tensorflow", "jax"])
def test_every_writer_saves_beside_a_training(framework: str, tmp_path: Path) -> None:
    load = frequency.Load(framework, "tiny", ((1,),), 2, 1, 5.0, settle_seconds=0.0)
    found = carried_out(frequency.case(PLAN, load, (1,), 0), tmp_path)
    saved = [row for row in found if row["interval"] == 1]
    assert {row["writer"] for row in saved} == set(frequency.WRITERS[framework])
    assert all(float(row["stall_seconds"] or 0) > 0 for row in saved)


@pytest.mark.parametrize("framework", ["chainer", "tensorflow"])
def test_two_ranks_save_in_every_way(framework: str, tmp_path: Path) -> None:
    if framework == "chainer" and shutil.which("mpirun") is None:
        pytest.skip("no mpirun here")
    load = scale.Load(framework, "tiny", 2, 1, 5.0, steps=2, settle_seconds=0.0)
    found = carried_out(scale.case(PLAN, load, scale.STRONG, 0), tmp_path)
    imbalance = {row["strategy"]: row.get("imbalance") for row in found}
    assert set(imbalance) == {*scale.STRATEGIES[framework], scale.NONE}
    assert (imbalance["rank0"], imbalance["all-write"]) == (2.0, pytest.approx(1.0, abs=0.01))
    assert 1.0 <= float(imbalance["deepfreeze"] or 0) < 1.2
