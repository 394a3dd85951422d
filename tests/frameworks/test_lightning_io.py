"""Lightning's own checkpoints, kept by DeepFreezeCheckpointIO."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning", reason="of build/frameworks-venv")

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

import deepfreeze as df
from deepfreeze.lightning import DeepFreezeCheckpointIO
from deepfreeze.trainers.lightning.held_paths import HeldPaths, is_held

from .test_lightning import fit, steps_in
from .trainer_parts import Parts


def own(place: Path, **options: Any) -> dict[str, Any]:
    """Options that have a Trainer save its own checkpoints to that directory."""
    saver = ModelCheckpoint(place, filename="{step}", **options)
    return {"callbacks": [saver], "plugins": [DeepFreezeCheckpointIO()]}


def fit_own(place: Path, steps: int, **options: Any) -> tuple[Trainer, Parts]:
    more = {key: options.pop(key) for key in ("ckpt_path", "seed") if key in options}
    saving = own(place, every_n_train_steps=1, **options)
    return fit(*saving.pop("callbacks"), steps=steps, enable_checkpointing=True, **saving, **more)


def test_a_path_of_lightnings_is_a_checkpoint_of_a_run(tmp_path: Path) -> None:
    _, first = fit_own(tmp_path, 4, save_top_k=-1, save_last="link")
    assert [(tmp_path / f"step={step}.ckpt").exists() for step in range(1, 6)] == 4 * [True] + [
        False
    ]
    assert steps_in(tmp_path / "deepfreeze") == [1, 2, 3, 4]
    _, undisturbed = fit(steps=7)
    _, second = fit_own(tmp_path, 7, ckpt_path=str(tmp_path / "last.ckpt"), save_top_k=-1)
    own_weights = [each.net.inner.weight for each in (undisturbed, second)]
    assert not torch.equal(own_weights[0], first.net.inner.weight)
    # Lightning keeps no generators: with dropout the resumed one differs, but it got that far.
    assert own_weights[0].shape == own_weights[1].shape
    assert int(second.sched.last_epoch) == int(undisturbed.sched.last_epoch)


def test_what_lightning_loads_is_what_it_saved(tmp_path: Path) -> None:
    trainer, parts = fit_own(tmp_path, 3, save_top_k=-1)
    stored = DeepFreezeCheckpointIO().load_checkpoint(tmp_path / "step=3.ckpt", map_location="cpu")
    assert stored["global_step"] == 3
    for name, tensor in parts.net.state_dict().items():
        assert torch.equal(stored["state_dict"][f"net.{name}"], tensor), name
    moments = stored["optimizer_states"][0]["state"][0]["exp_avg"]
    assert torch.equal(moments, parts.optim.state_dict()["state"][0]["exp_avg"])
    assert trainer.global_step == 3


def test_a_removed_path_goes_once_a_later_save_is_durable(tmp_path: Path) -> None:
    fit_own(tmp_path, 5, save_top_k=1, monitor="step", mode="max")
    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["step=5.ckpt"]
    assert steps_in(tmp_path / "deepfreeze") == [5]


def test_where_a_save_fails_what_it_was_to_replace_stays(tmp_path: Path) -> None:
    io = DeepFreezeCheckpointIO()
    io.save_checkpoint({"global_step": 1, "x": torch.ones(3)}, tmp_path / "a.ckpt")
    io.teardown()
    run = io._run_of(tmp_path / "a.ckpt")
    run._engine.close()  # whatever the reason, no save can be made any more
    io.save_checkpoint({"global_step": 2, "x": torch.zeros(3)}, tmp_path / "b.ckpt")
    io.remove_checkpoint(tmp_path / "a.ckpt")
    io.save_checkpoint({"global_step": 3, "x": torch.zeros(3)}, tmp_path / "a.ckpt")
    with pytest.raises(df.CheckpointError, match="no save has succeeded"):
        io.teardown()
    assert not (tmp_path / "b.ckpt").exists()
    assert io.load_checkpoint(tmp_path / "a.ckpt")["global_step"] == 1


def test_a_removal_waits_for_what_was_saved_last(tmp_path: Path) -> None:
    io = DeepFreezeCheckpointIO()
    io.save_checkpoint({"global_step": 1, "x": torch.ones(3)}, tmp_path / "a.ckpt")
    io.teardown()
    in_flight = df.SaveHandle(2, None)
    io._newest[tmp_path / "deepfreeze"] = in_flight
    io.remove_checkpoint(tmp_path / "a.ckpt")
    assert steps_in(tmp_path / "deepfreeze") == [1]
    assert (tmp_path / "a.ckpt").exists()
    in_flight.durable.set_result(2)
    assert steps_in(tmp_path / "deepfreeze") == []
    assert not (tmp_path / "a.ckpt").is_symlink()


def test_a_path_that_is_used_again_is_replaced(tmp_path: Path) -> None:
    io = DeepFreezeCheckpointIO()
    for step in (1, 2):
        io.save_checkpoint({"global_step": step, "x": torch.full((3,), step)}, tmp_path / "a.ckpt")
        assert io.load_checkpoint(tmp_path / "a.ckpt")["x"].tolist() == 3 * [step]
    io.teardown()
    assert steps_in(tmp_path / "deepfreeze") == [2]


def test_damage_is_found(tmp_path: Path) -> None:
    fit_own(tmp_path, 1, save_top_k=-1)
    (file,) = (tmp_path / "step=1.ckpt").glob("*.safetensors")
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    with pytest.raises(df.CorruptError):
        DeepFreezeCheckpointIO().load_checkpoint(tmp_path / "step=1.ckpt")


def test_other_files_are_lightnings(tmp_path: Path) -> None:
    trainer, _ = fit()
    trainer.save_checkpoint(tmp_path / "own.ckpt")
    io = DeepFreezeCheckpointIO()
    assert io.load_checkpoint(tmp_path / "own.ckpt", weights_only=False)["global_step"] == 4
    io.remove_checkpoint(tmp_path / "own.ckpt")
    assert not (tmp_path / "own.ckpt").exists()


@pytest.mark.parametrize("option", ["every", "keep", "on_busy", "ranks"])
def test_what_lightning_decides_is_refused(option: str) -> None:
    with pytest.raises(TypeError, match=option):
        DeepFreezeCheckpointIO(**{option: None})


def test_a_remote_path_is_refused() -> None:
    with pytest.raises(ValueError, match="local"):
        DeepFreezeCheckpointIO().save_checkpoint({}, "s3://bucket/a.ckpt")


def saved(io: DeepFreezeCheckpointIO, step: int, path: Path) -> None:
    io.save_checkpoint({"global_step": step, "x": torch.ones(3)}, path)


def test_a_path_exists_while_its_first_save_is_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepfreeze.trainers.lightning.checkpoint_io._publish", lambda *_: None)
    io, path = DeepFreezeCheckpointIO(), tmp_path / "a.ckpt"
    let_go = io._held.let_go
    io._held.let_go = lambda _: None  # type: ignore[method-assign]
    saved(io, 1, path)
    assert path.exists()
    assert is_held(path)
    with pytest.raises(df.CheckpointError, match="still being saved"):
        io.load_checkpoint(path)
    let_go(path)
    assert not path.is_symlink()
    io.teardown()


def test_a_name_in_flight_is_given_to_no_other(tmp_path: Path) -> None:
    """As with files: the second of two best ones is best-v1.ckpt."""

    class Slow(DeepFreezeCheckpointIO):
        def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
            super().save_checkpoint(checkpoint, path, storage_options)
            assert Path(path).exists()

    saver = ModelCheckpoint(
        tmp_path, filename="best", monitor="step", mode="max", save_top_k=2, every_n_train_steps=1
    )
    fit(saver, steps=2, enable_checkpointing=True, plugins=[Slow()])
    stored = {
        name: DeepFreezeCheckpointIO().load_checkpoint(tmp_path / name)["global_step"]
        for name in ("best.ckpt", "best-v1.ckpt")
    }
    assert stored == {"best.ckpt": 1, "best-v1.ckpt": 2}


def test_a_path_held_by_a_process_that_has_ended_is_free(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    path.symlink_to(f"/proc/{os.getpid()}/fd/999999")
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        DeepFreezeCheckpointIO().load_checkpoint(path)
    held = HeldPaths()
    held.hold(path)
    assert path.exists()
    held.close()
    assert not path.exists()


def test_a_save_that_fails_leaves_no_path(tmp_path: Path) -> None:
    io = DeepFreezeCheckpointIO()
    run = io._run_of(tmp_path / "a.ckpt")
    run._engine.close()
    saved(io, 1, tmp_path / "a.ckpt")
    with pytest.raises(df.CheckpointError, match="no save has succeeded"):
        io.teardown()
    assert not (tmp_path / "a.ckpt").is_symlink()
    with pytest.raises(df.EncodeError):
        io.save_checkpoint({"global_step": 1, "x": object()}, tmp_path / "b.ckpt")
    assert not (tmp_path / "b.ckpt").is_symlink()
    io.teardown()


def test_a_removal_leaves_what_was_saved_to_the_path_since(tmp_path: Path) -> None:
    io = DeepFreezeCheckpointIO()
    saved(io, 1, tmp_path / "a.ckpt")
    io._run_of(tmp_path / "a.ckpt").wait()
    in_flight = df.SaveHandle(2, None)
    io._newest[tmp_path / "deepfreeze"] = in_flight
    io.remove_checkpoint(tmp_path / "a.ckpt")
    saved(io, 3, tmp_path / "a.ckpt")
    io._run_of(tmp_path / "a.ckpt").wait()
    in_flight.durable.set_result(2)
    assert io.load_checkpoint(tmp_path / "a.ckpt")["global_step"] == 3
    io.teardown()


def test_a_path_leads_to_its_own_save_and_not_to_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose own turn comes, and which might else be deleted as an older one."""
    from deepfreeze.trainers.lightning import checkpoint_io

    publishing: list[tuple[Path, dict[str, str]]] = []
    publish = checkpoint_io._publish
    monkeypatch.setattr(checkpoint_io, "_publish", lambda *each: publishing.append(each))
    io, path = DeepFreezeCheckpointIO(), tmp_path / "a.ckpt"
    for step in (1, 2):
        saved(io, step, path)
    io._run_of(path).wait()
    publish(*publishing[0])
    assert DeepFreezeCheckpointIO().load_checkpoint(path)["global_step"] == 1
    publish(*publishing[1])
    assert DeepFreezeCheckpointIO().load_checkpoint(path)["global_step"] == 2
    assert steps_in(tmp_path / "deepfreeze") == [2]
    io.teardown()


def test_a_run_that_cannot_be_opened_is_a_save_that_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "deepfreeze").write_text("a file")
    (tmp_path / "own.ckpt").write_text("what it would replace")
    io = DeepFreezeCheckpointIO()
    saved(io, 1, tmp_path / "a.ckpt")
    assert "save of step 1 failed" in caplog.text
    io.remove_checkpoint(tmp_path / "own.ckpt")
    assert (tmp_path / "own.ckpt").exists()
    assert not (tmp_path / "a.ckpt").is_symlink()
    with pytest.raises(df.CheckpointError):
        saved(DeepFreezeCheckpointIO(strict_saves=True), 1, tmp_path / "a.ckpt")


def test_after_failed_saves_lightning_names_a_path_that_does_not_exist(tmp_path: Path) -> None:
    """As docs/frameworks/lightning.md says: Lightning notes a path before anything is saved."""
    (tmp_path / "deepfreeze").write_text("a file")  # so the run can't be opened
    trainer, _ = fit_own(tmp_path, 2, save_top_k=-1, save_last="link")
    saver = trainer.checkpoint_callback
    assert isinstance(saver, ModelCheckpoint)
    assert saver.best_model_path == str(tmp_path / "step=2.ckpt")
    assert not os.path.lexists(saver.best_model_path)
    assert (tmp_path / "last.ckpt").is_symlink()
    assert not (tmp_path / "last.ckpt").exists()


def test_a_file_in_a_directory_of_the_name_is_lightnings(tmp_path: Path) -> None:
    path = tmp_path / "deepfreeze" / "step-1.ckpt"
    path.parent.mkdir()
    torch.save({"global_step": 1}, path)
    io = DeepFreezeCheckpointIO()
    assert io.load_checkpoint(path) == {"global_step": 1}
    io.remove_checkpoint(path)
    assert not path.exists()
