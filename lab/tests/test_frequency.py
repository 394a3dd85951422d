"""The overhead against the interval: what is planned, its rows, one real round of torch."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.experiments import frequency
from lab.experiments.frequency import FULL, QUICK, WRITERS, Load, case, cases, rows
from lab.measure.case import Place, Plan
from lab.measure.program import Environments
from lab.measure.row import OK, Row, check
from lab.measure.run import rows_of


def segment(saver: str = "w", **given: Any) -> dict[str, Any]:
    return {
        "saver": saver, "title": saver, "position": 0, "every": 2, "synced": "all",
        "baseline": False, "in_backward": False, "fault": "", "state_bytes": 8, "tensor_count": 1,
        "seconds": 3.0, "step_seconds": [1.0, 1.1], "saves": [save(0.1), save(0.2), save(0.6)],
        "first_save_seconds": 0.9, "written_bytes": 30, "drain_seconds": 0.0, "cpu_seconds": 1.0,
        "file_bytes": 9, "copy_seconds": None, "last_loss": 0.5, **given,
    }  # fmt: skip


def save(call: float) -> dict[str, Any]:
    return {"call_seconds": call, "fence_seconds": 0.1, "durable_seconds": 10 * call}


def bare(**given: Any) -> dict[str, Any]:
    return segment("none", baseline=True, saves=[], written_bytes=None, **given)


def row(one: dict[str, Any], *others: dict[str, Any]) -> Row:
    return next(iter(rows([one, *others])))


@pytest.mark.parametrize("quick", [True, False])
def test_every_writer_of_every_framework_has_its_cases(quick: bool) -> None:
    found = list(cases(Plan(quick, 5)))
    assert len({one.key for one in found}) == len(found)
    assert {one.about["framework"] for one in found} == set(WRITERS)
    assert [one.key for one in cases(Plan(quick, 5))] == [one.key for one in found]


@pytest.mark.parametrize("load", [*QUICK, *FULL])
def test_a_segment_saves_at_every_interval(load: Load) -> None:
    for interval in (one for together in load.intervals for one in together):
        assert load.steps % interval == 0


def test_run_time_is_over_the_median_of_what_saved_nothing() -> None:
    alone = [bare(seconds=seconds, step_seconds=[seconds]) for seconds in (1.0, 2.0, 9.0)]
    other = bare(seconds=100.0, in_backward=True)
    found = row(segment(), *alone, other)
    assert (found["run_time_ratio"], found["step_seconds"]) == (1.5, 2.0)
    assert found["interval"] == 2
    assert row(other, segment())["interval"] == frequency.OFF


def test_stalls_are_of_call_and_fence() -> None:
    found = row(segment())
    assert found["stall_seconds"] == pytest.approx(0.3)
    assert json.loads(str(found["detail"]))["stall_worst_seconds"] == pytest.approx(0.7)
    assert found["written_bytes"] == 10


def test_only_what_is_synced_is_durable() -> None:
    assert row(segment())["durable_seconds"] == row(segment())["committed_seconds"] == 2.0
    found = row(segment(synced="nothing"))
    assert "durable_seconds" not in found
    assert found["committed_seconds"] == 2.0


@pytest.mark.parametrize(("fault", "status"), [
    ("OSError: [Errno 28] No space left on device", "no space"),
    ("1 of 2 saves committed", "failed"),
])  # fmt: skip
def test_a_writer_that_fails_has_a_row_with_the_reason(fault: str, status: str) -> None:
    found = row(segment(fault=fault, saves=[]), bare())
    assert (found["status"], found["reason"]) == (status, fault)
    assert "run_time_ratio" not in found


def test_a_baseline_that_failed_is_compared_with_nothing() -> None:
    assert "run_time_ratio" not in row(segment(), bare(fault="it broke"))


def test_torch_trains_with_every_writer(tmp_path: Path) -> None:
    plan = Plan(quick=True, seed=3)
    load = Load("pytorch", "tiny", ((2,),), 4, 1, 5.0, settle_seconds=0.0)
    found = rows_of(case(plan, load, (2,), 0), Environments(), tmp_path, plan)
    saved = [check(one) for one in found if one["interval"] == 2]
    assert [one for one in found if one["status"] != OK] == []
    assert {one["writer"] for one in saved} == set(WRITERS["pytorch"])
    assert sorted(str(one["writer"]) for one in found if one["interval"] == frequency.OFF) == [
        "none", "none", "none-in-backward", "none-in-backward",
    ]  # fmt: skip
    assert all(float(one["stall_seconds"] or 0) > 0 for one in saved)
    assert {json.loads(str(one["detail"]))["saves"] for one in saved} == {2}
    assert len({one["state_bytes"] for one in found}) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_process_is_asked_for_what_was_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def answer(_: Path, module: str, request: dict[str, Any], *__: Any, **___: Any) -> Any:
        asked.append({**request, "module": module})
        return {"segments": []}

    monkeypatch.setattr(frequency, "ask", answer)
    one, again = (case(Plan(quick=True, seed=seed), QUICK[0], (4, 1), 0) for seed in (1, 2))
    for each in (one, one, again):
        each.work(Place(tmp_path, Plan(quick=True, seed=1)))
        (tmp_path / "runs").rmdir()
    first, second, other = asked
    assert first == second
    assert first["writers"] == WRITERS[QUICK[0].framework]
    assert first["seed"] != other["seed"]
    assert first["order_seed"] != other["order_seed"]
