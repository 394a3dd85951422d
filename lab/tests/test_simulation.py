"""The model of 1 to 4,096 nodes: what it is told, what it answers, how it is calibrated."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from deepfreeze.interval.arithmetic import daly_seconds
from lab.measure.row import COLUMNS, Row
from lab.simulation import model
from lab.simulation.calibration import CalibrationError, calibrate, compare, predict
from lab.simulation.machine import (
    Machine,
    MachineError,
    Parameter,
    Workload,
    nt3,
    one_tensor,
    read_machine,
)
from lab.simulation.model import (
    ALL_WRITE,
    ASYNCHRONOUS,
    DEEPFREEZE,
    LOCAL,
    PARALLEL,
    RANK0,
    STRATEGIES,
    Setup,
    curve,
    point,
    run,
    scenario,
)
from lab.tests.simulated import built

GB = 1_000_000_000


def workload() -> Workload:
    return Workload("w", one_tensor(4 * GB), 10.0, 8.0)


def measured(strategy: str, ranks: int, stall: float, durable: float) -> Row:
    return {
        "strategy": strategy, "ranks": ranks, "stall_seconds": stall, "durable_seconds": durable,
        "step_seconds": 10.0, "state_bytes": 4 * GB,
    }  # fmt: skip


def one_rank() -> list[Row]:
    """Storage of 1 GB/s, copies of 4 GB/s, 2 GB/s to serialise; 10 ms of DeepFreeze's own."""
    return [
        measured(RANK0, 1, 6.0, 6.0),
        measured(ALL_WRITE, 1, 6.0, 6.0),
        measured(ASYNCHRONOUS, 1, 1.0, 7.0),
        measured(DEEPFREEZE, 1, 0.01, 4.01),
    ]


def test_every_figure_of_the_machine_has_a_source() -> None:
    machine = read_machine()
    assert machine.name == "theta-like"
    for name, parameter in machine.parameters.items():
        words = parameter.source.lower()
        known = any(word in words for word in ("assumed", "derived", "table", "white paper"))
        assert known, f"{name}: {parameter.source}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "JSONDecodeError"),
        ('{"name": "x"}', "KeyError: 'parameters'"),
        ('{"name": "x", "parameters": {"a": {"value": "1", "source": "s"}}}', "a: value is not"),
        ('{"name": "x", "parameters": {"a": {"value": 1, "source": " "}}}', "a: no source"),
        ('{"name": "x", "parameters": {"a": 1}}', "a: value is not"),
    ],
)
def test_a_bad_machine_names_file_and_field(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "machine.json"
    path.write_text(text)
    with pytest.raises(MachineError, match=r"machine\.json") as caught:
        read_machine(path)
    assert said in str(caught.value)


def test_a_scenario_nests_the_machine_and_leaves_its_sources_out() -> None:
    found = scenario(read_machine(), workload(), Setup(RANK0, 3, 2))
    assert found["machine"]["local"]["write_bandwidth"] == 0.5e9
    assert (found["machine"]["nodes"], found["machine"]["ranks_per_node"]) == (3, 2)
    assert found["workload"]["tensors"] == [["state", "U8", [4 * GB]]]


def test_nt3_has_the_published_size() -> None:
    numbers = 0
    for name, _, shape in nt3(10.0).tensors:
        if name.startswith("model."):
            count = 1
            for extent in shape:
                count *= extent
            numbers += count
    assert numbers == 154_922_918


def test_says_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(model, "PROGRAM", tmp_path / "none")
    with pytest.raises(model.NotInstalledError, match="not installed: libsimgrid-dev"):
        run(read_machine(), workload(), Setup(RANK0, 1))


@built
def test_a_refused_scenario_says_why() -> None:
    machine = read_machine().with_(parallel__stripes=Parameter(57, "a test"))
    with pytest.raises(model.SimulationError, match=r"scenario.json: machine.parallel.stripes: 57"):
        run(machine, workload(), Setup(RANK0, 1))


@built
def test_the_program_ends_with_2_where_the_scenario_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text("[]")
    for arguments in ([str(path)], [str(tmp_path / "none.json")], []):
        done = subprocess.run(
            [str(model.PROGRAM), *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert not done.stdout
        assert done.stderr.startswith("deepfreeze_simulate: " if arguments else "usage: ")


@built
def test_results_are_typed_and_say_that_they_are_simulated() -> None:
    result = run(read_machine(), nt3(10.0), Setup(DEEPFREEZE, 4, storage=LOCAL, flush=True))
    assert result.simulated
    assert result.state_bytes == 2 * 4 * 154_922_918
    assert result.share_bytes is not None
    least, most = result.share_bytes
    assert most - least <= 2 * 1024 * 1024, "the planner's promise"
    assert len(result.saves) == 3
    assert sum(result.load.bytes) == pytest.approx(3 * result.state_bytes)
    local, parallel = result.durable_seconds(LOCAL), result.durable_seconds(PARALLEL)
    assert local is not None
    assert parallel is not None
    assert 0 < local < parallel


@built
def test_a_save_is_protected_by_the_groups_of_the_product() -> None:
    setup = Setup(DEEPFREEZE, 16, storage=LOCAL, flush=True, protect=(6, 2), restore=True)
    result = run(read_machine(), workload(), setup)
    assert result.protection is not None
    assert [len(group) for group in result.protection.groups] == [8, 8]
    assert result.protection.loss_by_lost_nodes[2:4] == pytest.approx((0, 112 / 560))
    local, ready = result.durable_seconds(LOCAL), result.protected_seconds()
    assert local is not None
    assert ready is not None
    assert local < ready
    for save in result.saves:
        assert save.pulled_bytes == pytest.approx((4 * GB / 8, 4 * GB / 8), rel=0.01), "2 x B"
        assert save.parity_bytes == pytest.approx((4 * GB / 48, 4 * GB / 48), rel=0.01), "B / 3"
    assert result.restore is not None
    assert None not in (result.restore.near_seconds, result.restore.parity_seconds)


@built
def test_without_protection_nothing_is_protected() -> None:
    result = run(read_machine(), workload(), Setup(DEEPFREEZE, 2, storage=LOCAL))
    assert (result.protection, result.restore) == (None, None)
    assert result.protected_seconds() is None
    assert result.saves[0].pulled_bytes == (0, 0)


@built
def test_the_same_seed_gives_the_same_answer() -> None:
    training = nt3(10.0, seed=5)
    setup = Setup(RANK0, 8)
    first = run(read_machine(), training, setup)
    assert run(read_machine(), training, setup) == first
    assert run(read_machine(), replace(training, seed=6), setup) != first


@built
def test_a_curve_has_every_strategy_on_every_number_of_nodes() -> None:
    year = 365 * 86400.0
    points = curve(read_machine(), nt3(10.0), mtbf_per_node_seconds=year, nodes=(1, 16))
    rows = [point.row() for point in points]
    assert [(row["strategy"], row["nodes"]) for row in rows] == [
        (strategy, nodes) for strategy in STRATEGIES for nodes in (1, 16)
    ]
    for row in rows:
        assert row["simulated"] is True
        assert set(row) <= set(COLUMNS)
        assert row["mtbf_seconds"] == year / int(row["nodes"] or 0)
        detail = json.loads(str(row["detail"]))
        assert len(detail["load_bytes"]) == 60
        assert detail["durable_parallel_seconds"] > 0, "flushed, or written there"
        assert (detail["durable_local_seconds"] is not None) == (row["strategy"] == DEEPFREEZE)


@built
def test_the_best_interval_is_that_of_young_and_daly() -> None:
    mtbf = 30 * 86400.0
    found = point(read_machine(), workload(), Setup(RANK0, 8), mtbf)
    best = daly_seconds(found.result.save_seconds, mtbf / 8)
    assert best <= float(found.row()["best_interval_seconds"] or 0) <= best + 10.1


@built
def test_the_best_interval_is_no_shorter_than_a_save_takes() -> None:
    machine = read_machine().with_(parallel__client_bandwidth=Parameter(4e7, "a test"))
    found = point(machine, workload(), Setup(ASYNCHRONOUS, 64, interval=20), 64.0)
    assert found.best.steps < 10
    assert found.best_interval_steps == 11, "100 s to the file system, 10 s a step"


@built
def test_a_save_that_costs_nothing_has_an_interval_too(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(ASYNCHRONOUS, 2)
    free = replace(run(read_machine(), workload(), setup), save_seconds=-1e-12)
    monkeypatch.setattr(model, "run", lambda *_: free)
    found = point(read_machine(), workload(), setup, 1e6)
    assert found.best.steps == 1
    assert found.best_interval_steps >= 1


def test_calibration_finds_what_it_was_made_of() -> None:
    found = calibrate(one_rank(), cores=2)
    values = {name: parameter.value for name, parameter in found.machine.parameters.items()}
    assert values["local.write_bandwidth"] == pytest.approx(1e9)
    assert values["copy_bandwidth"] == pytest.approx(4e9)
    assert values["memory_bandwidth"] == pytest.approx(8e9)
    assert values["call_seconds"] == pytest.approx(0.01)
    rates = {name: rate.value for name, rate in found.serialize_bandwidths.items()}
    assert rates == pytest.approx({RANK0: 2e9, ALL_WRITE: 2e9, ASYNCHRONOUS: 2e9, DEEPFREEZE: 0})


def test_calibration_takes_medians_and_only_one_rank() -> None:
    worse = [measured(DEEPFREEZE, 1, 0.01, seconds) for seconds in (3.01, 90.0)]
    others = [measured(DEEPFREEZE, 2, 9.0, 90.0), measured("by hand", 1, 1.0, 1.0)]
    found = calibrate([*one_rank(), *worse, *others], cores=2)
    assert set(found.strategies()) == set(STRATEGIES)
    assert found.machine.parameters["local.write_bandwidth"].value == pytest.approx(1e9)


def test_calibration_says_what_is_missing() -> None:
    with pytest.raises(CalibrationError, match="strategy deepfreeze"):
        calibrate([measured(RANK0, 1, 6.0, 6.0), measured(DEEPFREEZE, 2, 0.01, 4.0)])
    with pytest.raises(CalibrationError, match="is no bandwidth"):
        calibrate([measured(DEEPFREEZE, 1, 4.0, 4.0)])
    with pytest.raises(CalibrationError, match="strategy rank0 has step_seconds"):
        calibrate([{**measured(RANK0, 1, 6.0, 6.0), "step_seconds": None}, *one_rank()[3:]])
    without = [row for row in one_rank() if row["strategy"] != ASYNCHRONOUS]
    copying = calibrate(without).machine.parameters["copy_bandwidth"]
    assert copying.source.startswith("assumed")


@built
def test_a_prediction_for_one_rank_is_what_was_measured() -> None:
    rows = one_rank()
    comparison = compare(predict(calibrate(rows, cores=2), [1]), rows)
    assert len(comparison.rows) == 8
    assert comparison.worst == pytest.approx(0, abs=1e-3)


@built
def test_predictions_for_more_ranks_share_storage_and_cores() -> None:
    rows = predict(calibrate(one_rank(), cores=2), [2, 4])
    found = {(row["strategy"], row["ranks"]): row for row in rows}
    assert all(row["simulated"] is True for row in rows)
    assert found[RANK0, 4]["durable_seconds"] == pytest.approx(6.0)
    assert found[ALL_WRITE, 4]["durable_seconds"] == pytest.approx(4 + 16)
    assert found[DEEPFREEZE, 2]["durable_seconds"] == pytest.approx(4.01, rel=1e-3)
    assert found[DEEPFREEZE, 4]["stall_seconds"] == pytest.approx(0.02, rel=1e-3)
    assert found[DEEPFREEZE, 4]["step_seconds"] == 20.0


@built
def test_ranks_with_storage_of_their_own_share_none() -> None:
    rows = predict(calibrate(one_rank(), cores=8), [4], apart=True)
    found = {row["strategy"]: row["durable_seconds"] for row in rows}
    assert found[ALL_WRITE] == pytest.approx(6.0)
    assert found[DEEPFREEZE] == pytest.approx(1.01, rel=1e-3)


def test_a_comparison_has_errors_by_strategy_and_ranks() -> None:
    predicted = [measured(RANK0, 2, 3.0, 8.0), measured(RANK0, 8, 1.0, 1.0)]
    real = [measured(RANK0, 2, 2.0, 10.0), measured(DEEPFREEZE, 2, 1.0, 1.0)]
    comparison = compare(predicted, real)
    errors = {row["quantity"]: row["prediction_error"] for row in comparison.rows}
    assert errors == pytest.approx({"stall_seconds": 0.5, "durable_seconds": -0.2})
    assert (comparison.median, comparison.worst) == pytest.approx((0.35, 0.5))
    assert compare([], real).worst is None
    half: list[Row] = [
        {"strategy": RANK0, "ranks": 2, "stall_seconds": 2.0, "durable_seconds": None}
    ]
    assert [row["quantity"] for row in compare(half, real).rows] == ["stall_seconds"]


def test_parameters_are_replaced_by_their_dotted_name() -> None:
    machine = Machine("m", {"local.read_bandwidth": Parameter(1, "assumed")})
    changed = machine.with_(local__read_bandwidth=Parameter(2, "a test"))
    assert changed.fields()["local"] == {"read_bandwidth": 2}
    assert machine.fields()["local"] == {"read_bandwidth": 1}
