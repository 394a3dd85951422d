"""The cost of a save, its files, and coming back: what is planned, and one small real case each."""

from functools import partial
from pathlib import Path

import pytest

from lab.experiments import cost, formats, restore
from lab.experiments.cost import Size
from lab.measure.case import Case, Plan, ToolError
from lab.measure.program import Environments
from lab.measure.row import FAILED, LEFT_OUT, NO_SPACE, NOT_INSTALLED, OK, Row, check
from lab.measure.run import rows_of
from lab.writers.menu import SAVERS
from lab.writers.tried import chosen, left_out

TINY = Size(("tiny",), rounds=1, saves=2)
FRAMEWORKS = {"pytorch", "tensorflow", "chainer", "jax"}
PLAN = Plan(quick=True, seed=5)


def carried_out(case: Case, tmp_path: Path, environments: Environments | None = None) -> list[Row]:
    return list(map(check, rows_of(case, environments or Environments(), tmp_path, PLAN)))


def named(cases: list[Case], part: str) -> Case:
    return next(case for case in cases if part in case.name)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("experiment", [cost, restore, formats])
def test_a_plan_is_the_same_each_time_and_has_every_framework(
    experiment: object, quick: bool
) -> None:
    cases = list(experiment.cases(Plan(quick, 5)))  # type: ignore[attr-defined]
    again = list(experiment.cases(Plan(quick, 5)))  # type: ignore[attr-defined]
    assert [case.key for case in cases] == [case.key for case in again]
    assert len({case.key for case in cases}) == len(cases)
    if experiment is not formats:  # whose cases are environments
        assert {
            case.about["framework"] for case in cases if "framework" in case.about
        } == FRAMEWORKS


def test_rounds_are_shuffled_anew_and_have_the_same_writers() -> None:
    cases = list(cost.cases(Plan(quick=False, seed=5)))
    orders = [
        [case.about["writer"] for case in cases if case.name.endswith(f"/{index}")
         and case.name.startswith("resnet50/")] for index in range(2)
    ]  # fmt: skip
    assert sorted(map(str, orders[0])) == sorted(map(str, orders[1]))
    assert orders[0] != orders[1]


def test_what_is_left_out_says_why(tmp_path: Path) -> None:
    """Each writer of the menu is measured or has a row."""
    for quick in (True, False):
        told = {entry.name for entry, _ in left_out(quick)}
        assert told | {entry.name for entry in chosen(quick)} == set(SAVERS)
        for experiment in (cost, restore):
            found = {case.about["writer"] for case in experiment.cases(Plan(quick, 5))}
            assert found >= set(SAVERS)
    cases = list(cost.cases(PLAN))
    (row,) = carried_out(named(cases, "left out fastpersist"), tmp_path)
    assert (row["status"], row["writer"]) == (LEFT_OUT, "fastpersist")
    assert "make bench" in str(row["reason"])


def test_a_save_is_measured_again_and_again(tmp_path: Path) -> None:
    (case,) = [one for one in only("torch-save") if one.experiment == "cost"]
    rows = carried_out(case, tmp_path)
    assert [row["status"] for row in rows] == [OK, OK]
    assert [row["repetition"] for row in rows] == [0, 1]
    assert all(0 < float(str(row["stall_seconds"])) <= float(str(row["durable_seconds"]))
               for row in rows)  # fmt: skip
    assert rows[0]["first_stall_seconds"] is not None
    assert float(str(rows[0]["open_seconds"])) > 0
    assert not {"first_stall_seconds", "open_seconds"} & set(rows[1])
    assert int(str(rows[0]["written_bytes"])) >= int(str(rows[0]["state_bytes"]))


def only(writer: str) -> list[Case]:
    """That writer's cases of a tiny state."""
    works = (("cost", cost.measured), ("restore", restore.measured))
    found = [one for name, work in works for one in cost.interleaved(name, PLAN, TINY, work, 1.0)]
    return [one for one in found if one.about["writer"] == writer]


def test_a_restore_is_compared_byte_by_byte(tmp_path: Path) -> None:
    (case,) = [one for one in only("df") if one.experiment == "restore"]
    (row,) = carried_out(case, tmp_path)
    assert (row["status"], row["verdict"]) == (OK, "same bytes")
    assert float(str(row["restore_seconds"])) > 0


@pytest.mark.parametrize("wrong", [{"wrong": ["a"]}, {"partial_wrong": True}])
def test_other_bytes_are_a_verdict(wrong: dict[str, object]) -> None:
    good = {"wrong": [], "partial_wrong": False, "seconds": 1.0, "partial_seconds": 1.0,
            "cpu_seconds": 1.0, "peak_bytes": 1}  # fmt: skip
    assert restore.figures(good)["verdict"] == "same bytes"
    assert restore.figures({**good, **wrong})["verdict"] == "other bytes"


def test_files_are_counted_and_written_twice(tmp_path: Path) -> None:
    entries = [SAVERS["safetensors"], SAVERS["df"]]
    work = partial(formats.measured, entries, "tiny", "", formats.HASH_SEEDS)
    rows = carried_out(Case("formats", "tiny", 1.0, {"workload": "tiny"}, work), tmp_path)
    assert [row["writer"] for row in rows] == ["safetensors", "df"]
    assert [row["reproducible"] for row in rows] == [True, False]
    assert all(int(str(row["file_bytes"])) > int(str(row["state_bytes"])) for row in rows)


def test_what_is_saved_once_has_a_size_and_says_nothing_of_the_same_bytes(tmp_path: Path) -> None:
    entries = [SAVERS["safetensors"]]
    work = partial(formats.measured, entries, "mlp", "", formats.HASH_SEEDS[:1])
    (row,) = carried_out(Case("formats", "mlp", 1.0, {"workload": "mlp"}, work), tmp_path)
    assert row["status"] == OK
    assert "reproducible" not in row
    assert row["parameters"] == 1_867_786
    assert int(str(row["file_bytes"])) > 3 * 4 * int(str(row["parameters"]))


def test_a_place_without_direct_io_has_a_row_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = named(list(cost.cases(PLAN)), "direct I/O")
    (row,) = carried_out(case, tmp_path)
    assert row["status"] == OK
    monkeypatch.setattr(cost, "has_direct_io", lambda _: False)
    (row,) = carried_out(case, tmp_path)
    assert (row["status"], row["reason"]) == (LEFT_OUT, cost.BUFFERED)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("OSError: [Errno 28] No space left on device: 'x'", NO_SPACE),
        ("ModuleNotFoundError: No module named 'torch'", NOT_INSTALLED),
        ("ValueError: it broke", FAILED),
    ],
)
def test_what_a_program_fails_of_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, status: str
) -> None:
    def fails(*_: object) -> None:
        raise ToolError(error)

    monkeypatch.setattr(cost, "ask", fails)
    (row,) = carried_out(only("torch-save")[0], tmp_path)
    assert (row["status"], row["reason"]) == (status, error)


def test_a_missing_environment_is_a_row(tmp_path: Path) -> None:
    (case,) = [one for one in only("orbax-async") if one.experiment == "cost"]
    environments = Environments({"frameworks": "build/frameworks-venv could not be made"})
    (row,) = carried_out(case, tmp_path, environments)
    assert row["status"] == NOT_INSTALLED
    assert (row["framework"], row["reason"]) == (
        "jax", "build/frameworks-venv could not be made"
    )  # fmt: skip
