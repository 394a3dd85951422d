"""Two studies beside each other, by rows written by hand."""

import json
from pathlib import Path

import pytest

from lab.measure.row import Row, Value
from lab.report.compare import Timing, compare
from lab.report.summary import Figure

ABOUT = {"format": 1, "quick": True, "seed": 7, "machine": {}}


def study(directory: Path, *rows: Row, seed: int = 7) -> Path:
    directory.mkdir()
    (directory / "study.json").write_text(json.dumps({**ABOUT, "seed": seed}))
    whole = ({"status": "ok", "case": str(index), "rows": 1, **row}
             for index, row in enumerate(rows))  # fmt: skip
    (directory / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in whole))
    return directory


def saves(*stalls: float, **more: Value) -> list[Row]:
    row: Row = {"experiment": "cost", "framework": "jax", "workload": "nt3", "writer": "df"}
    return [{**row, "stall_seconds": one, "file_bytes": 10, **more} for one in stalls]


def test_two_runs_alike_differ_in_nothing(tmp_path: Path) -> None:
    first, second = (study(tmp_path / name, *saves(1.0, 2.0, 3.0)) for name in "ab")
    found = compare(first, second)
    assert (found.measurements, found.changes, found.exit_status) == (1, (), 0)
    assert found.spreads()["apart"] == 0
    assert "0 exact values differ" in found.text()


def test_an_exact_value_that_differs_is_named_and_the_status_says_so(tmp_path: Path) -> None:
    first = study(tmp_path / "a", *saves(1.0))
    found = compare(first, study(tmp_path / "b", *saves(1.0, file_bytes=11)))
    assert found.exit_status == 1
    assert "jax nt3 df: file_bytes: 10 -> 11" in found.text()


def test_another_seed_is_told_before_what_follows_from_it(tmp_path: Path) -> None:
    first = study(tmp_path / "a", *saves(1.0))
    found = compare(first, study(tmp_path / "b", *saves(1.0, file_bytes=11), seed=8))
    assert found.text().splitlines()[1] == "  they differ in seed (7, 8)"


def test_another_machine_or_commit_is_told(tmp_path: Path) -> None:
    first, second = (study(tmp_path / name, *saves(1.0)) for name in "ab")
    for directory, commit in ((first, "c1"), (second, "c2")):
        about = {**ABOUT, "machine": {"cpu": f"of {commit}", "commit": commit, "kernel": "k"}}
        (directory / "study.json").write_text(json.dumps(about))
    assert sorted(compare(first, second).unlike) == ["commit (c1, c2)", "cpu (of c1, of c2)"]


def test_a_machine_on_which_only_one_was_gone_on_with_is_told(tmp_path: Path) -> None:
    first, second = (study(tmp_path / name, *saves(1.0)) for name in "ab")
    machine = {"cpu": "a", "commit": "c", "kernel": "k"}
    resumed = [{**machine, "cpu": "b"}]
    (first / "study.json").write_text(json.dumps({**ABOUT, "machine": machine}))
    about = {**ABOUT, "machine": machine, "resumed": resumed}
    (second / "study.json").write_text(json.dumps(about))
    assert compare(first, second).unlike == ("cpu (a, a, then b)",)
    assert compare(second, second).unlike == ()


def test_a_later_repetition_that_differs_is_not_passed_over(tmp_path: Path) -> None:
    first = study(tmp_path / "a", *saves(1.0, 2.0))
    second = study(tmp_path / "b", *saves(1.0), *saves(2.0, file_bytes=11))
    assert [one.second for one in compare(first, second).changes] == ["10, 11"]


def test_from_nothing_to_something_is_no_ratio_of_one(tmp_path: Path) -> None:
    first = study(tmp_path / "a", *saves(0.0, 0.0))
    found = compare(first, study(tmp_path / "b", *saves(1.0, 1.0)))
    assert found.timings[0].ratio == float("inf")
    assert json.loads(json.dumps(found.as_json(), allow_nan=False))["timings"][0]["ratio"] is None


def test_a_measurement_of_one_only_is_named(tmp_path: Path) -> None:
    first = study(tmp_path / "a", *saves(1.0), *saves(1.0, writer="orbax"))
    found = compare(first, study(tmp_path / "b", *saves(1.0)))
    assert found.exit_status == 1
    assert f"only in {first}: cost jax nt3 orbax" in found.text()


def test_timings_that_do_not_touch_are_shown_with_how_often_chance_does_that(
    tmp_path: Path,
) -> None:
    first = study(tmp_path / "a", *saves(1.0, 2.0, 3.0))
    found = compare(first, study(tmp_path / "b", *saves(4.0, 5.0, 6.0)))
    assert found.exit_status == 0, "timings may differ"
    told = found.as_json()["spreads"]
    assert told == {"timings": 1, "apart": 1, "apart_by_chance": pytest.approx(0.1),
                    "half_within": 2.5, "nine_in_ten_within": 2.5}  # fmt: skip
    assert "stall_seconds: 2 [1, 3] -> 5 [4, 6], 2.50 x" in found.text()


def test_one_figure_alone_is_never_apart(tmp_path: Path) -> None:
    first = study(tmp_path / "a", *saves(1.0))
    found = compare(first, study(tmp_path / "b", *saves(9.0)))
    assert found.spreads() == {"timings": 0, "apart": 0, "apart_by_chance": 0,
                               "half_within": None, "nine_in_ten_within": None}  # fmt: skip


@pytest.mark.parametrize(("first", "second", "chance"), [(1, 1, 0.0), (2, 2, 1 / 3), (3, 3, 0.1)])
def test_the_chance_that_ranges_do_not_touch(first: int, second: int, chance: float) -> None:
    one, other = (Figure(2.0, 1.0, 3.0, count) for count in (first, second))
    assert Timing("", "", one, other).chance == pytest.approx(chance)
