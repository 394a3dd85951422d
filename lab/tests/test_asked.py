"""Every network that is asked for is measured, or has a row that says why not."""

from pathlib import Path

import pytest

from lab import experiments
from lab.experiments import formats
from lab.measure.case import Case, Plan
from lab.measure.program import Environments
from lab.measure.row import LEFT_OUT, Row, check
from lab.measure.run import rows_of
from lab.networks import asked as workloads
from lab.networks.asked import ABSENT, NETWORKS, PARAMETERS
from lab.report.tables import tables
from lab.report.tables.speed import title
from lab.tests.test_report import cost_row, study_of
from lab.tests.test_workloads import parameter_count, parts_without_memory

MINUTES_MAX = {False: 84.0, True: 13.5}  # 90 and 15 are promised


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_the_parameters_are_those_of_the_network(name: str, count: int) -> None:
    assert parameter_count(parts_without_memory(name).model) == count


def of(experiment: str, *, quick: bool) -> list[Case]:
    return list(experiments.cases_of([experiment], Plan(quick, 5)))


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("experiment", experiments.NAMES)
def test_no_network_is_silently_left_out(experiment: str, quick: bool, tmp_path: Path) -> None:
    cases = of(experiment, quick=quick)
    assert {one.about.get("workload") for one in cases} >= set(NETWORKS) - {"mlp"}
    assert len({one.key for one in cases}) == len(cases)
    for one in cases:
        if one.name.startswith(ABSENT):
            (row,) = rows_of(one, Environments(), tmp_path, Plan(quick, 5))
            assert check(row)["status"] == LEFT_OUT
            assert row.get("workload") not in PARAMETERS or row["parameters"]


def test_sizes_are_measured_of_all_but_the_largest() -> None:
    measured = {one.about["workload"] for one in formats.cases(Plan(quick=False, seed=5))}
    assert measured >= set(NETWORKS) - {"p1b1"}
    (absent,) = [one for one in of("formats", quick=False) if one.name == f"{ABSENT}p1b1"]
    assert "p1b1-6k is measured in its place" in workloads.reason(
        "formats", "p1b1", ("p1b1-6k",), quick=False
    )
    assert absent.about["parameters"] == 244_400_085


@pytest.mark.parametrize("experiment", ["cost", "formats", "frequency", "scale", "restore"])
def test_a_row_of_a_network_has_its_parameters(experiment: str) -> None:
    """But for formats, whose rows get them with the writer; see test_cost."""
    cases = [one for one in experiments.load(experiment).cases(Plan(quick=False, seed=5))
             if one.about.get("writer") or one.about.get("scaling")]  # fmt: skip
    known = [one for one in cases if one.about.get("workload") in PARAMETERS
             and one.about.get("fault") is None and not one.about.get("simulated")]  # fmt: skip
    assert all(one.about["parameters"] == PARAMETERS[str(one.about["workload"])] for one in known)
    assert known or experiment in ("formats", "frequency")


def test_what_measured_rows_are_put_into_a_model_comes_after_all_that_is_absent() -> None:
    names = [one.name for one in of("scale", quick=True)]
    absent = [index for index, name in enumerate(names) if name.startswith(ABSENT)]
    assert max(absent) < names.index("model/pytorch")


def test_an_absent_network_is_told_and_is_no_line_of_a_table() -> None:
    absent: Row = {
        "experiment": "cost", "case": f"{ABSENT}uno", "workload": "uno", "status": LEFT_OUT,
        "reason": "its time",
    }  # fmt: skip
    measured, told = tables(study_of(cost_row("df", 0.1), absent), "cost")
    assert len(measured.lines) == 1
    assert [cell.text for cell in told.lines[0].cells] == ["uno", "its time"]


def test_a_table_says_how_many_parameters() -> None:
    (group,) = study_of(cost_row("df", 0.1, parameters=1_867_786)).groups("cost")
    assert title("mlp", [group]) == "mlp, a state of 1 GiB, 1,867,786 parameters"


@pytest.mark.parametrize("quick", [True, False])
def test_a_study_is_expected_to_end_well_before_the_promised_time(quick: bool) -> None:
    cases = experiments.cases_of(list(experiments.NAMES), Plan(quick, 5))
    assert sum(one.seconds for one in cases) / 60 <= MINUTES_MAX[quick]
