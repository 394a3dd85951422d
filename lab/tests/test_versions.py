"""Every row that packages had a part in says which; the report and a comparison read that."""

from pathlib import Path

import pytest

from lab.measure.case import Case, Plan
from lab.measure.program import OWN, Environments
from lab.measure.row import LEFT_OUT, Row, check
from lab.measure.run import rows_of
from lab.measure.versions import read
from lab.report.compare import compare
from lab.report.markdown import summary
from lab.report.page import page
from lab.tests.test_compare import saves, study
from lab.tests.test_report import cost_row, study_of

OTHERS = ("cost", "formats", "frequency", "scale", "restore", "portability", "tearing")


def made(tmp_path: Path, row: Row, experiment: str = "cost", environment: str = OWN) -> Row:
    case = Case(experiment, "a", 1.0, {"framework": "pytorch"}, lambda _: [row], environment)
    (found,) = rows_of(case, Environments(), tmp_path, Plan(quick=True, seed=5))
    return check(found)


@pytest.mark.parametrize("experiment", OTHERS)
def test_a_row_of_any_experiment_says_by_which_versions(experiment: str, tmp_path: Path) -> None:
    found = read(made(tmp_path, {}, experiment))
    assert {"deepfreeze-checkpoint", "torch", "safetensors"} <= set(found)
    assert found["torch"].startswith("2.")


def test_a_row_that_knows_better_keeps_its_own(tmp_path: Path) -> None:
    assert made(tmp_path, {"versions": "torch 9"})["versions"] == "torch 9"


def test_what_no_package_has_done_has_no_versions(tmp_path: Path) -> None:
    assert "versions" not in made(tmp_path, {"status": LEFT_OUT, "reason": "no root"})
    assert list(read(made(tmp_path, {"simulated": True}))) == ["deepfreeze-checkpoint"]


def test_an_environment_that_does_not_answer_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.measure.versions.python", lambda _: Path("/nowhere/python"))
    assert made(tmp_path, {}, environment="gone")["versions"] == ""


def test_the_report_shows_those_of_the_rows_and_of_how_many() -> None:
    known = study_of(cost_row("df", 1.0, versions="torch 2.1, jax 0.9"), cost_row("old", 1.0))
    for shown in (summary(known), page(known)):
        assert "Packages, as 1 of 2 rows tell: jax 0.9, torch 2.1." in shown
    for shown in (summary(study_of(cost_row("old", 1.0))), page(study_of(cost_row("old", 1.0)))):
        assert "Packages" not in shown


def test_a_comparison_says_which_differ(tmp_path: Path) -> None:
    first = study(tmp_path / "a", *saves(1.0, versions="jax 0.9, orbax-checkpoint 1, h5py 3"))
    second = study(tmp_path / "b", *saves(1.0, versions="jax 0.10, orbax_checkpoint 1"))
    older = study(tmp_path / "c", *saves(1.0))
    found = compare(first, second)
    assert found.unlike == ("jax (0.9, 0.10)",)
    assert found.exit_status == 0
    assert compare(first, older).unlike == ()
