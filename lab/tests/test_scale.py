"""Several ranks: what is planned, how rows are made of what ranks tell, one real job of torch."""

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lab.experiments import scale, simulated
from lab.experiments.scale import LEFT_OUT, STRATEGIES, STRONG, WEAK, Load, case, cases, rows
from lab.measure import ranks_jobs as jobs
from lab.measure import ranks_workers as workers
from lab.measure.case import Plan
from lab.measure.program import Environments
from lab.measure.row import LEFT_OUT as LEFT_OUT_STATUS
from lab.measure.row import OK, Row, check
from lab.measure.run import rows_of
from lab.programs import scale as program
from lab.programs.scale_rank import share_of
from lab.simulation.model import STRATEGIES as SIMULATED
from lab.simulation.model import why_not_installed

SAVER = {"w": {"strategy": "rank0", "title": "W", "synced": "all"}}


def told(saver: str = "w", **given: Any) -> dict[str, Any]:
    return {
        "saver": saver, "position": 0, "seconds": 3.0, "step_seconds": [1.0], "first_stall": 0.5,
        "stalls": [0.1, 0.2], "durable": [1.0, 2.0], "own_bytes": 8, "state_bytes": 8,
        "tensors": 1, "file_bytes": 9, "fault": "", **given,
    }  # fmt: skip


def bare(**given: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = {"stalls": [], "durable": [], "own_bytes": None, "file_bytes": None}
    return told("none", **nothing, **given)


def first(*by_rank: list[dict[str, Any]], synced: str = "all") -> Row:
    saver = {"w": {**SAVER["w"], "synced": synced}}
    return next(iter(rows({"by_rank": list(by_rank), "savers": saver}, 2)))


@pytest.mark.parametrize("quick", [True, False])
def test_every_framework_has_cases_or_a_reason(quick: bool) -> None:
    every = list(cases(Plan(quick, 5)))
    assert len({one.key for one in every}) == len(every)
    found = [one for one in every if not one.about.get("simulated")]
    assert {one.about["framework"] for one in found} == {*STRATEGIES, "jax"}
    assert [one.key for one in cases(Plan(quick, 5))] == [one.key for one in every]
    torch = {one.about["ranks"] for one in found if one.about["framework"] == "pytorch"}
    assert torch == {1, 2, 4, 8}
    run = {one.about["ranks"] for one in found
           if one.about["framework"] == "pytorch" and one.about.get("scaling")}  # fmt: skip
    assert run == ({1, 2, 4} if quick else {1, 2, 4, 8})


def test_ranks_that_quick_does_not_run_have_a_row() -> None:
    found = {(one.about.get("framework"), one.about.get("ranks"))
             for one in cases(Plan(quick=True, seed=5))}  # fmt: skip
    assert found >= scale.jobs(scale.FULL)


def test_torch_has_every_strategy_of_the_model() -> None:
    assert set(SIMULATED) < set(STRATEGIES["pytorch"])


def test_what_is_left_out_says_why(tmp_path: Path) -> None:
    for one in scale.left_out(Plan(quick=False, seed=1)):
        (row,) = rows_of(one, Environments(), tmp_path, Plan(quick=True, seed=1))
        assert check(row)["status"] == LEFT_OUT_STATUS
    assert all(reason for _, reason in LEFT_OUT)


def modelled(name: str, tmp_path: Path, *measured: Row) -> list[Row]:
    (one,) = [one for one in cases(Plan(quick=True, seed=1)) if one.name == name]
    return rows_of(one, Environments(), tmp_path, Plan(quick=True, seed=1), measured)


def of_ranks(strategy: str, ranks: int, seconds: float) -> Row:
    return {
        "experiment": "scale", "status": "ok", "framework": "pytorch", "scaling": "weak",
        "strategy": strategy, "ranks": ranks, "stall_seconds": seconds, "state_bytes": 1 << 30,
        "durable_seconds": 2.0, "step_seconds": 1.0,
    }  # fmt: skip


@pytest.mark.skipif(why_not_installed() is not None, reason="the simulator was not built here")
def test_the_model_is_held_against_what_was_measured(tmp_path: Path) -> None:
    one_rank, two_ranks = (of_ranks("deepfreeze", ranks, 0.5) for ranks in (1, 2))
    found = modelled("model/pytorch", tmp_path, one_rank, two_ranks)
    assert [(row["status"], row["quantity"], row["ranks"]) for row in found] == [
        ("ok", "stall_seconds", 2), ("ok", "durable_seconds", 2),
    ]  # fmt: skip
    assert all(row["simulated"] and "prediction_error" in check(row) for row in found)


def test_only_what_the_model_is_held_against_is_derived_from_measurements() -> None:
    names = [one.name for one in cases(Plan(quick=True, seed=1)) if one.derived]
    assert names == ["model/pytorch"]


@pytest.mark.skipif(why_not_installed() is not None, reason="the simulator was not built here")
def test_without_a_measurement_there_is_nothing_to_hold_it_against(tmp_path: Path) -> None:
    other = {**of_ranks("deepfreeze", 1, 0.5), "framework": "chainer"}
    (row,) = modelled("model/pytorch", tmp_path, other)
    assert row["status"] == LEFT_OUT_STATUS
    assert "no row of one rank" in str(row["reason"])


def test_without_the_simulator_a_row_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulated, "why_not_installed", lambda: "no simulator")
    (row,) = modelled("nodes/deepfreeze", tmp_path)
    assert (row["status"], row["reason"]) == (LEFT_OUT_STATUS, "no simulator")


def test_the_slowest_rank_counts() -> None:
    ranks = [
        told(stalls=[0.9, 0.0], seconds=1.0, durable=[None, None]),
        told(stalls=[0.1, 0.0], seconds=4.0, durable=[2.0, 2.0]),
        told(stalls=[0.3, 0.0], seconds=2.0, durable=[3.0, 3.0]),
    ]
    alone = [bare(seconds=seconds) for seconds in (1.0, 2.0, 1.0)]
    found = first(*([one, nothing] for one, nothing in zip(ranks, alone, strict=True)))
    assert found["stall_seconds"] == pytest.approx(0.45)  # of the saves 0.9 and 0
    assert found["straggler_seconds"] == pytest.approx(0.3)  # 0.6 and 0
    assert found["durable_seconds"] == 3.0
    assert found["run_time_ratio"] == 2.0
    assert found["file_bytes"] == 27


def test_imbalance_is_the_most_over_the_mean() -> None:
    assert first([told(own_bytes=8)], [told(own_bytes=0)])["imbalance"] == 2.0
    assert first([told(own_bytes=8)], [told(own_bytes=8)])["imbalance"] == 1.0
    assert "imbalance" not in first([told(own_bytes=None)], [told(own_bytes=8)])


def test_only_what_is_synced_is_durable() -> None:
    found = first([told()], synced="nothing")
    assert "durable_seconds" not in found
    assert found["committed_seconds"] == 1.5


def test_one_rank_that_fails_is_a_row_with_the_reason() -> None:
    found = first([told(), bare()], [told(fault="it broke"), bare()])
    assert (found["status"], found["reason"], found["strategy"]) == ("failed", "it broke", "rank0")


def test_strong_scaling_shares_each_batch_and_weak_gives_each_its_own() -> None:
    batches = [(list(range(5)), list("abcde")), (list(range(5, 10)), list("fghij"))]
    shares = [share_of(batches, STRONG, rank, 2) for rank in range(2)]
    assert sorted(shares[0][0][0] + shares[1][0][0]) == list(range(5))
    assert shares[1][1] == ([6, 8], ["g", "i"])
    assert share_of(batches, WEAK, 1, 2) == [batches[1], batches[0]]
    assert share_of(batches, WEAK, 2, 4) == batches


@pytest.mark.parametrize("framework", ["chainer"])
def test_mpi_that_is_missing_is_said(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="not installed: mpi4py"):
        program.work({"framework": framework, "ranks": 2})


def test_workers_know_each_other_by_the_loopback() -> None:
    first, second = map(json.loads, workers.configurations(2))
    assert first["cluster"] == second["cluster"]
    ports = [one.rpartition(":") for one in first["cluster"]["worker"]]
    assert {host for host, _, _ in ports} == {"127.0.0.1"}
    assert len({port for _, _, port in ports}) == 2
    assert [one["task"]["index"] for one in (first, second)] == [0, 1]


def test_a_worker_that_fails_ends_the_others(tmp_path: Path) -> None:
    (tmp_path / "one_fails.py").write_text(
        "import json, os, sys, time\n"
        "index = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"
        "sys.exit(3) if index else time.sleep(600)\n"
    )
    command = [*jobs.workers(2), "one_fails"]
    began = time.monotonic()
    status, _ = jobs.run(command, {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}, 60.0)
    assert status == 3
    assert time.monotonic() - began < 60


def test_a_job_that_hangs_is_ended() -> None:
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(TimeoutError, match="more than"):
        jobs.run(sleeps, {}, 0.2)


def test_two_ranks_of_torch_save_in_every_way(tmp_path: Path) -> None:
    plan = Plan(quick=True, seed=3)
    load = Load("pytorch", "mlp", 2, 1, 5.0, steps=2, settle_seconds=0.0)
    found = rows_of(case(plan, load, WEAK, 0), Environments(), tmp_path, plan)
    assert {check(one)["status"] for one in found} == {OK}, found
    by_strategy = {one["strategy"]: one for one in found}
    assert set(by_strategy) == {*STRATEGIES["pytorch"], scale.NONE}
    for strategy in STRATEGIES["pytorch"]:
        one = by_strategy[strategy]
        for name in ("stall_seconds", "durable_seconds", "step_seconds", "run_time_ratio"):
            assert float(one[name] or 0) > 0, (strategy, name)
    imbalance = {strategy: one.get("imbalance") for strategy, one in by_strategy.items()}
    assert (imbalance["rank0"], imbalance["all-write"]) == (2.0, 1.0)
    assert 1.0 <= float(imbalance["deepfreeze"] or 0) < 1.2
    sizes = {name: int(one.get("file_bytes") or 0) for name, one in by_strategy.items()}
    assert sizes["all-write"] == 2 * sizes["rank0"]
    state = int(by_strategy["deepfreeze"]["state_bytes"] or 0)
    assert state <= sizes["deepfreeze"] < 1.1 * state
    assert list(tmp_path.iterdir()) == []
