"""The study's flips in files, in frameworks that have more than torch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from lab.experiments import sdc
from lab.experiments.sdc import SILENT, TOLD, Group
from lab.measure import run as study_run
from lab.measure.case import Plan
from lab.measure.program import FRAMEWORKS, Environments
from lab.tests.conftest import one_thread  # noqa: F401 (a fixture that is used by itself)

LEFT_OUT = None
WANTED = {
    "chainer": {"chainer-stored": TOLD, "chainer": LEFT_OUT, "chainer-hdf5-stored": SILENT,
                "df-chainer": TOLD},
    "jax": {"orbax": LEFT_OUT, "orbax-plain": SILENT, "orbax-zarr-plain": SILENT, "df-jax": TOLD},
}  # fmt: skip


@pytest.mark.parametrize("framework", WANTED)
def test_who_tells(framework: str, tmp_path: Path) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"LEFT OUT: no {framework} here; `make frameworks` has all")
    wanted = WANTED[framework]
    plan = Plan(quick=True, seed=7)
    case = sdc.of_files(plan, Group(framework, FRAMEWORKS, tuple(wanted), 1.0, 1.0))
    rows = study_run.rows_of(case, Environments(), tmp_path, plan)
    found = {row["writer"]: row.get("verdict") for row in rows}
    assert found == wanted, [row.get("reason") for row in rows]
    whole = [row for row in rows if row["status"] == "ok"]
    assert {row["trials"] for row in whole} <= {3, 2}
    assert all(row["trials"] == row["found"] + row["silent"] for row in whole)
