"""The study's snapshots under updates, in frameworks that have more than torch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from lab.experiments import tearing
from lab.experiments.tearing import CONSISTENT, TORN, Group
from lab.measure import run as study_run
from lab.measure.case import Plan
from lab.measure.program import Environments
from lab.tests.conftest import one_thread  # noqa: F401 (a fixture that is used by itself)

WANTED = {
    "chainer": {"chainer-thread": TORN, "chainer-process": CONSISTENT, "df-chainer": CONSISTENT},
    "tensorflow": {"tensorflow-async": CONSISTENT, "df-tensorflow": CONSISTENT},
    "jax": {"orbax-async": CONSISTENT, "df-jax": CONSISTENT},
}
GROUPS = {each.framework: each for each in tearing.GROUPS}


@pytest.mark.parametrize("framework", WANTED)
def test_verdicts(framework: str, tmp_path: Path) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"LEFT OUT: no {framework} here; `make frameworks` has all")
    wanted = WANTED[framework]
    writers = tuple(each for each in GROUPS[framework].writers if each.name in wanted)
    group = Group(framework, GROUPS[framework].environment, writers, 1.0, 1.0)
    case = tearing.case(group, quick=True)
    rows = study_run.rows_of(case, Environments(), tmp_path, Plan(quick=True, seed=7))
    assert {row["writer"]: row.get("verdict", row.get("reason")) for row in rows} == wanted
