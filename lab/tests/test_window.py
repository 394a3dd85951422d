"""The comparison of savers counts what it claims; nothing here judges a speed."""

import dataclasses
import json
import math
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import deepfreeze as df
from lab.experiments.window import SAVERS, chosen_savers
from lab.measure import loop as measure
from lab.measure.loop import Experiment, Segment
from lab.measure.loop_summary import COPIES_TARGET, row, targets
from lab.networks.torch_workloads import WORKLOADS, Parts, Training
from lab.report import loop_table as report
from lab.writers.loop import (
    DEEPFREEZE,
    KEEP_LAST,
    DeepFreezeSaver,
    NoneInBackward,
    Saver,
    SaveRecord,
)
from lab.writers.loop_peers import PEERS, Peer, TorchSave

ROOT = Path(__file__).resolve().parents[2]
TINY = WORKLOADS["tiny"]
SEED = 11
COLUMNS = {
    "saver", "title", "synced", "baseline", "status", "faults", "rounds_good", "rounds_run",
    "step_seconds", "ratio", "loop_ratio", "added_seconds_per_save", "copies_per_save",
    "added_cpu_seconds_per_save", "written_bytes_per_save", "file_bytes", "drain_seconds",
    "first_save_seconds", "stall_p50_seconds", "stall_p95_seconds", "stall_worst_seconds",
    "stall_worst_is", "call_p50_seconds", "fence_p50_seconds", "fence_reported_p50_seconds",
    "durable_p50_seconds", "saves_requested", "saves_committed", "saves_skipped", "same_training",
}  # fmt: skip
INSTALLED = [saver for saver in (*DEEPFREEZE, *PEERS) if not saver.missing()]


def experiment(*savers: type[Saver], every: int = 1, rounds: int = 1, steps: int = 4) -> Experiment:
    return Experiment("tiny", TINY, every, savers, rounds, steps, SEED, settle_seconds=0.0)


def ignore(_: int) -> None:
    """Shows no progress."""


def measured(one: Experiment, directory: Path) -> report.Result:
    return report.Result(one, list(measure.run(one, directory, lambda _: ignore)))


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, Path]:
    place = tmp_path_factory.mktemp("smoke")
    command = [sys.executable, "-m", "lab.experiments.window", "--smoke", "--every", "2"]
    command += ["--directory", str(place), "--json", str(place / "all.json")]
    command += ["--markdown", str(place / "table.md"), "--seed", str(SEED)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures: dict[str, Any] = json.loads((place / "all.json").read_text())
    return figures, done.stdout, place


def test_smoke_commits_and_counts_every_save_of_every_saver(
    smoke: tuple[dict[str, Any], str, Path],
) -> None:
    figures, _, _ = smoke
    assert [(one["workload"], one["every"]) for one in figures["experiments"]] == [("tiny", 2)]
    for one in figures["experiments"]:
        found = {saved["saver"]: saved for saved in one["rows"]}
        assert set(found) == {saver.name for saver in chosen_savers(None)}
        for saver in INSTALLED:
            mine = found[saver.name]
            assert mine["status"] == "ok", mine
            assert mine["saves_requested"] == one["rounds"] * one["steps"] // one["every"]
            assert mine["saves_committed"] == mine["saves_requested"]
            assert mine["saves_skipped"] == 0
            assert mine["same_training"] is True


def test_smoke_writes_all_columns_with_finite_figures(
    smoke: tuple[dict[str, Any], str, Path],
) -> None:
    figures, _, _ = smoke
    for one in figures["experiments"]:
        assert all(set(saved) == COLUMNS for saved in one["rows"])
        assert all(seconds > 0 for seconds in one["copy_seconds"])
        for saver in INSTALLED:
            mine = next(saved for saved in one["rows"] if saved["saver"] == saver.name)
            for column in ("ratio", "loop_ratio", "copies_per_save", "added_seconds_per_save"):
                assert math.isfinite(mine[column]["median"]), column
                assert mine[column]["count"] == one["rounds"]
            assert mine["stall_worst_is"] == f"max of {mine['saves_committed']}"
            assert mine["stall_p50_seconds"] >= mine["call_p50_seconds"] >= 0
    for word in ("cores", "cpu", "kernel", "file_system", "torch", "date"):
        assert figures["machine"][word], word


def test_smoke_leaves_no_checkpoints_and_names_no_place(
    smoke: tuple[dict[str, Any], str, Path],
) -> None:
    _, output, place = smoke
    assert sorted(path.name for path in place.iterdir()) == ["all.json", "table.md"]
    for text in (output, (place / "all.json").read_text(), (place / "table.md").read_text()):
        assert f"--seed {SEED}" in text
        assert str(place) not in text


def test_every_round_runs_all_savers_in_an_order_of_its_own() -> None:
    one = experiment(*chosen_savers(None), rounds=20)
    orders = [tuple(saver.name for saver in one.order(index)) for index in range(20)]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len(set(orders)) > 10
    assert orders == [tuple(s.name for s in one.order(index)) for index in range(20)]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("saver", INSTALLED, ids=lambda saver: str(saver.name))
def test_each_saver_keeps_the_newest_two_checkpoints(saver: type[Saver], tmp_path: Path) -> None:
    training = TINY.build(SEED, in_backward=saver.in_backward)
    run = tmp_path / "run"
    made = saver(training, run, every=1)
    for step in range(1, 5):
        training.train_step(step, made)
        made.after_step(step)
    made.drain()
    made.settle()
    made.close()
    training.release()
    assert [record.step for record in made.records if record.committed] == [1, 2, 3, 4]
    if isinstance(made, DeepFreezeSaver):
        with df.Checkpointer(run) as reader:
            assert reader.steps() == [3, 4]
            assert reader.verify(4) == []
    elif isinstance(made, Peer) and made.beside:
        assert sorted(path.parent.name for path in run.rglob(made.marker)) == ["step-3", "step-4"]
    assert len([path for path in run.iterdir() if path.name.startswith("step-")]) == KEEP_LAST


class Raises(TorchSave):
    """Fails in its second measured save."""

    name = "raises"
    title = "one that raises"

    def save(self, record: SaveRecord, began: float) -> None:
        if record.step == 4:
            raise OSError("no such luck")
        super().save(record, began)


class Loses(TorchSave):
    """Returns from a save that it has not committed."""

    name = "loses"
    title = "one that loses"
    step, error = 4, "lost it"

    def save(self, record: SaveRecord, began: float) -> None:
        if record.step == self.step:
            record.error = self.error
            return
        super().save(record, began)


class LosesFirst(Loses):
    """Loses a save before the measured ones begin."""

    name = "loses-first"
    title = "one that loses its first"
    step, error = 1, "lost it early"


class Absent(TorchSave):
    """What a peer that is not installed says."""

    name = "absent"
    title = "one that is absent"

    @classmethod
    def missing(cls) -> str:
        return "not installed"


def test_a_saver_that_fails_is_shown_with_its_error_and_the_others_go_on(tmp_path: Path) -> None:
    result = measured(experiment(Saver, Raises, Loses, LosesFirst, Absent, TorchSave), tmp_path)
    statuses = {found["saver"]: found["status"] for found in result.rows()}
    assert statuses == {
        "none": "ok",
        "raises": "failed",
        "loses": "failed",
        "loses-first": "failed",
        "absent": "not installed",
        "torch-save": "ok",
    }
    assert [found["saver"] for found in result.failed()] == ["raises", "loses", "loses-first"]
    for shown in (report.text(result), report.markdown([result], {}, "")):
        assert shown.count("FAILED") == 3
        assert "OSError: no such luck" in shown
        assert "3 of 4 saves committed: lost it" in shown
        assert "warm-up save of step 1: lost it early" in shown
        assert "one that is absent: not installed" in shown
    figures = report.experiment_figures(result)
    assert [found["saver"] for found in figures["rows"]] == list(statuses)
    assert list(tmp_path.iterdir()) == []


def test_saves_of_the_warm_up_are_not_counted(tmp_path: Path) -> None:
    result = measured(experiment(Saver, TorchSave, every=2, steps=5), tmp_path)
    found = result.rows()[1]
    assert (found["saves_committed"], found["saves_requested"]) == (2, 2)
    assert found["first_save_seconds"] is not None


class RaisesInBackward(NoneInBackward):
    """Fails inside a hook of the optimizer, which backward calls."""

    name = "raises-in-backward"
    is_baseline = False

    def __init__(self, training: Training, directory: Path, every: int) -> None:
        super().__init__(training, directory, every)
        for optimizer in training.optimizers.values():
            optimizer.register_step_post_hook(self.fail)

    def fail(self, *_: object) -> None:
        raise OSError("no such luck")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize(
    "saver",
    [Saver, NoneInBackward, RaisesInBackward, Raises, *INSTALLED],
    ids=lambda saver: str(saver.name),
)
def test_a_segment_leaves_nothing_of_its_training(saver: type[Saver], tmp_path: Path) -> None:
    models: list[weakref.ref[nn.Module]] = []

    def make_parts() -> Parts:
        parts = TINY.make_parts()
        models.append(weakref.ref(parts.model))
        return parts

    watched = dataclasses.replace(TINY, make_parts=make_parts)
    result = measured(dataclasses.replace(experiment(saver), workload=watched), tmp_path)
    assert bool(result.failed()) == saver.name.startswith("raises")
    assert [model() for model in models] == [None]


def segment(saver: str, round_index: int, seconds: float, stalls: int = 0) -> Segment:
    made = Segment(saver, round_index, 0, seconds=seconds, copy_seconds=0.25)
    made.saves_expected = stalls
    made.saves = [SaveRecord(step, 0.001 * step, committed=True) for step in range(1, stalls + 1)]
    return made


def test_ratios_are_paired_within_the_round() -> None:
    one = experiment(Saver, TorchSave, rounds=2, steps=2)
    segments = [segment("none", 0, 1.0), segment("none", 1, 4.0)]
    segments += [segment("torch-save", 1, 6.0, 2), segment("torch-save", 0, 2.0, 2)]
    found = row(one, TorchSave, segments)
    assert found["ratio"] is not None
    assert (found["ratio"].median, found["ratio"].low, found["ratio"].high) == (1.75, 1.5, 2.0)
    assert found["copies_per_save"] is not None
    # (2 - 1) and (6 - 4) seconds over two saves, in copies of a quarter of a second.
    assert (found["copies_per_save"].low, found["copies_per_save"].high) == (2.0, 4.0)


def test_a_round_without_a_baseline_gives_no_ratio() -> None:
    one = experiment(Saver, TorchSave, rounds=2, steps=2)
    broken = dataclasses.replace(segment("none", 1, 1.0), error="broken")
    segments = [segment("none", 0, 1.0), broken]
    segments += [segment("torch-save", index, 3.0, 2) for index in range(2)]
    found = row(one, TorchSave, segments)
    assert found["ratio"] is not None
    assert (found["ratio"].count, found["rounds_good"]) == (1, 2)


def test_p99_is_claimed_from_200_saves_on() -> None:
    one = experiment(Saver, TorchSave, rounds=2, steps=100)
    few = [segment("torch-save", 0, 1.0, 100)]
    assert row(one, TorchSave, few)["stall_worst_is"] == "max of 100"
    enough = [*few, segment("torch-save", 1, 1.0, 100)]
    found = row(one, TorchSave, enough)
    assert found["stall_worst_is"] == "p99"
    assert found["stall_worst_seconds"] == pytest.approx(0.099)


def test_targets_are_judged_for_capture_in_the_window_alone() -> None:
    window = SAVERS["df-latency"]
    one = experiment(Saver, window, TorchSave, steps=2)
    segments = [segment("none", 0, 1.0)]
    segments += [segment(saver.name, 0, 1.5, 2) for saver in (window, TorchSave)]
    judged = targets(one, [row(one, saver, segments) for saver in one.savers])
    assert [found.saver for found in judged] == ["df-latency"] * 2
    assert (judged[0].bound, judged[0].measured, judged[0].met) == (COPIES_TARGET, 1.0, True)


def test_a_busy_machine_gets_no_verdict() -> None:
    window = SAVERS["df-latency"]
    one = experiment(Saver, window, rounds=2, steps=2)
    segments = [segment("none", 0, 1.0), segment("none", 1, 1.3)]
    segments += [segment(window.name, index, 1.1, 2) for index in range(2)]
    result = report.Result(one, segments)
    assert result.targets() == []
    assert "no verdict on targets" in report.text(result)
