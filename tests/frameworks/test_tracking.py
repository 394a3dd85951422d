"""Exports, read again by TensorBoard's own reader and MLflow's own client."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import deepfreeze as df
from deepfreeze.exploring.runs import Run
from deepfreeze.tracking import lineage, to_mlflow, to_tensorboard

sys.modules.setdefault("tensorboard.compat.notf", ModuleType("notf"))  # it needs no TensorFlow
multiplexer = pytest.importorskip(
    "tensorboard.backend.event_processing.event_multiplexer", reason="of build/frameworks-venv"
)

Points = list[tuple[int, float]]


def save(run: Path, steps: range, parent: tuple[Path, int] | None = None, scale: float = 1) -> None:
    with df.Checkpointer(run, parent=parent) as ckpt:
        ckpt.restore({"w": np.zeros(4, "f4")})
        for step in steps:
            metrics = {"loss": scale / step, "a odd:name": float("nan") if step == 2 else step}
            state = {"w": np.full(4, step * scale, "f4")}
            ckpt.save(step, state, metrics=metrics, tags={"lr": "0.1", "x:y": "ü" * 9000}).wait()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A run, its fork and a fork of that, whose names sort the other way round."""
    runs = tmp_path / "runs"
    save(runs / "z", range(1, 5))
    save(runs / "forks" / "m", range(3, 6), (runs / "z", 2), 3)
    save(runs / "forks" / "a", range(5, 7), (runs / "forks" / "m", 4), 5)
    return runs


def scalars(folder: Path) -> dict[str, dict[str, Points]]:
    """All that TensorBoard finds, by run and metric."""
    found = multiplexer.EventMultiplexer().AddRunsFromDirectory(str(folder)).Reload()
    return {
        run: {
            tag: [(each.step, each.value) for each in found.Scalars(run, tag)]
            for tag in tags["scalars"]
        }
        for run, tags in found.Runs().items()
    }


def times(folder: Path, run: str) -> list[float]:
    found = multiplexer.EventMultiplexer().AddRunsFromDirectory(str(folder)).Reload()
    return [each.wall_time for each in found.Scalars(run, "loss")]


def test_tensorboard_reads_each_run_with_its_metrics(tree: Path, tmp_path: Path) -> None:
    made = to_tensorboard(tree, tmp_path / "logs")
    assert len(made) == 3
    assert all(path.is_file() for path in made)
    found = scalars(tmp_path / "logs")
    assert found.keys() == {"z", "forks/m", "forks/a"}
    assert found["z"]["loss"] == [(1, 1), (2, 0.5), (3, pytest.approx(1 / 3)), (4, 0.25)]
    assert found["forks/m"]["loss"] == [(3, 1), (4, 0.75), (5, pytest.approx(0.6))]
    assert found["forks/a"]["loss"] == [(5, 1), (6, pytest.approx(5 / 6))]
    odd = dict(found["z"]["a odd:name"])
    assert np.isnan(odd.pop(2))
    assert odd == {1: 1, 3: 3, 4: 4}
    saved = [info.wall_micros / 1e6 for info in df._core.list_checkpoints(str(tree / "z"))]
    assert times(tmp_path / "logs", "z") == pytest.approx(saved[::-1], abs=1e-5)


def test_a_later_export_replaces_its_own_files_alone(tree: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    to_tensorboard([tree / "z"], logs)
    other = logs / "z" / "events.out.tfevents.1.of-the-training"
    other.touch()
    save(tree / "z", range(7, 8))
    (made,) = to_tensorboard(str(tree / "z"), logs)
    assert set((logs / "z").iterdir()) == {made, other}
    assert [step for step, _ in scalars(logs)["z"]["loss"]] == [1, 2, 3, 4, 7]


def test_a_fork_brings_its_parents_and_abandoned_steps_stay_out(tree: Path, tmp_path: Path) -> None:
    state = {"w": np.zeros(4, "f4")}
    with df.Checkpointer(tree / "forks" / "a") as ckpt:
        ckpt.restore(state, step=5)
        ckpt.save(8, state, metrics={"loss": 9.0}).wait()
    to_tensorboard(tree / "forks" / "a", tmp_path / "logs")
    found = scalars(tmp_path / "logs")
    assert found.keys() == {"z", "forks/m", "forks/a"}
    assert found["forks/a"]["loss"] == [(5, 1), (8, 9)]


@pytest.mark.parametrize("export", [to_tensorboard, to_mlflow])
def test_a_run_that_can_not_be_read_stops_the_export_at_its_begin(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, export: Any
) -> None:
    real = lineage.read_runs

    def one_is_bad(paths: list[Path]) -> list[Run]:
        runs = real(paths)
        next(run for run in runs if run.name == "z").fault = "its claim is odd"
        return runs

    monkeypatch.setattr(lineage, "read_runs", one_is_bad)
    with pytest.raises(df.CheckpointError, match=r"export .*/z: .* read: its claim is odd; mend"):
        export(tree, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    with pytest.raises(df.CheckpointError, match="none: no such directory"):
        export(tmp_path / "none", str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("export", "package"), [(to_tensorboard, "tensorboard"), (to_mlflow, "mlflow")]
)
def test_a_package_that_is_missing_is_named(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, export: Any, package: str
) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(df.CheckpointError, match=rf"{package}.*pip install '?{package}"):
        export(tree, str(tmp_path / "out"))


def test_a_folder_that_can_not_be_written_is_named(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(df.CheckpointError, match=r"export to TensorBoard in .*file: "):
        to_tensorboard(tree, tmp_path / "file")


# MLflow


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store in files: one in SQLite takes six seconds to be made."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "store").as_uri()


def client_of(store: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(store)


def models(store: str, run: str) -> dict[int, Any]:
    """Whole models by their step."""
    client = client_of(store)
    experiment = client.get_run(run).info.experiment_id
    found = client.search_logged_models([experiment], f"source_run_id = '{run}'")
    assert all(each.status == "READY" for each in found)
    by_step = {int(each.tags["deepfreeze.step"]): each for each in found}
    assert len(by_step) == len(found)
    return by_step


def test_mlflow_has_a_model_for_each_step_and_forks_as_children(tree: Path, store: str) -> None:
    ids = to_mlflow(tree, "study", tracking_uri=store)
    client = client_of(store)
    paths = [tree / "z", tree / "forks" / "m", tree / "forks" / "a"]
    assert ids.keys() == {str(path) for path in paths}
    z, m, a = (client.get_run(ids[str(path)]) for path in paths)
    assert "mlflow.parentRunId" not in z.data.tags
    assert m.data.tags["mlflow.parentRunId"] == z.info.run_id
    assert a.data.tags["mlflow.parentRunId"] == m.info.run_id
    assert a.data.tags["deepfreeze.parent"] == f"{paths[1]}@4"
    assert (a.info.run_name, a.info.status) == ("forks/a", "FINISHED")
    found = models(store, m.info.run_id)
    assert sorted(found) == [3, 4, 5]
    assert {each.key: each.value for each in found[4].metrics} == {"loss": 0.75, "a odd_name": 4.0}
    assert found[4].tags["lr"] == "0.1"
    assert found[4].tags["x_y"] == "ü" * 5000
    step = Path(found[4].tags["deepfreeze.path"])
    assert step.is_dir()
    assert step.parent == paths[1]
    history = client.get_metric_history(m.info.run_id, "loss")
    assert [(each.step, each.value) for each in history] == [(3, 1.0), (4, 0.75), (5, 0.6)]
    saved = {
        info.step: info.wall_micros // 1000 for info in df._core.list_checkpoints(str(paths[1]))
    }
    assert {each.step: each.timestamp for each in history} == saved


def test_a_metric_that_is_not_finite_is_no_number_of_a_model(tree: Path, store: str) -> None:
    run = to_mlflow(tree / "z", "study", tracking_uri=store)[str(tree / "z")]
    found = models(store, run)
    assert {each.key for each in found[2].metrics} == {"loss"}
    assert found[2].tags["deepfreeze.not_finite"] == "a odd:name=nan"
    assert "deepfreeze.not_finite" not in found[3].tags
    history = client_of(store).get_metric_history(run, "a odd_name")
    assert [(each.step, str(each.value)) for each in history] == [
        (1, "1.0"), (2, "nan"), (3, "3.0"), (4, "4.0"),
    ]  # fmt: skip


def test_no_byte_of_a_checkpoint_goes_to_mlflow(tree: Path, tmp_path: Path, store: str) -> None:
    to_mlflow(tree, "study", tracking_uri=store)
    assert not list((tmp_path / "store").rglob("*.safetensors"))


def test_a_second_export_adds_what_is_new(tree: Path, store: str) -> None:
    first = to_mlflow(tree, "study", tracking_uri=store)
    run = first[str(tree / "z")]
    before = {step: each.model_id for step, each in models(store, run).items()}
    save(tree / "z", range(7, 9))
    assert to_mlflow(tree, "study", tracking_uri=store) == first
    after = {step: each.model_id for step, each in models(store, run).items()}
    assert sorted(after) == [1, 2, 3, 4, 7, 8]
    assert before.items() <= after.items()


def test_an_export_that_was_cut_off_goes_on(
    tree: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    log_metric, calls = MlflowClient.log_metric, []

    def failing(self: Any, *words: Any, **more: Any) -> Any:
        calls.append(words)
        if len(calls) == 4:  # within the second model
            raise OSError("the line is down")
        return log_metric(self, *words, **more)

    monkeypatch.setattr(MlflowClient, "log_metric", failing)
    with pytest.raises(
        df.CheckpointError, match=r"experiment 'study' at .*: the line is down; the next"
    ):
        to_mlflow(tree / "z", "study", tracking_uri=store)
    monkeypatch.undo()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    ids = to_mlflow(tree / "z", "study", tracking_uri=store)
    found = models(store, ids[str(tree / "z")])
    assert sorted(found) == [1, 2, 3, 4]
    assert [len(found[step].metrics) for step in (1, 2, 3, 4)] == [2, 1, 2, 2]


def test_runs_are_left_as_they_were(tree: Path, tmp_path: Path, store: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tree, copy)
    to_tensorboard(tree, tmp_path / "logs")
    to_mlflow(tree, "study", tracking_uri=store)
    names = [sorted(str(each.relative_to(top)) for each in top.rglob("*")) for top in (tree, copy)]
    assert names[0] == names[1]
