"""The paths that Lightning hands out, and a run's knowledge of the fits that saved to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning", reason="of build/frameworks-venv")

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

import deepfreeze as df
from deepfreeze.lightning import DeepFreezeCallback, DeepFreezeCheckpointIO

ALARM = "none was restored"


class Line(LightningModule):
    """Logs the given losses, by the global step."""

    def __init__(self, width: int, losses: tuple[float, ...] = ()) -> None:
        super().__init__()
        self.save_hyperparameters("width")
        self.net = torch.nn.Linear(width, 1)
        self.losses = losses

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.losses:
            self.log("my_loss", self.losses[self.global_step % len(self.losses)])
        return self.net(batch).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters())


class Fit:
    """A Trainer that saves each step to `place`, as ModelCheckpoint's `options` say."""

    def __init__(self, place: Path, **options: Any) -> None:
        chosen = {"filename": "{step}", "save_top_k": -1, "every_n_train_steps": 1, **options}
        self.saver: Any = ModelCheckpoint(place, **chosen)
        self.model = Line(2, (3.0, 1.0, 2.0))
        self.trainer: Any = None
        self.io: Any = DeepFreezeCheckpointIO()

    def to(self, steps: int, ckpt_path: Any = None) -> Fit:
        rows = DataLoader(torch.randn(8, 2), batch_size=1)
        if self.trainer is None:
            self.trainer = Trainer(
                accelerator="cpu", max_steps=steps, callbacks=[self.saver],
                plugins=[self.io] if self.io else [],
                enable_checkpointing=self.io is not None,  # else Lightning saves where it runs
                logger=False, enable_progress_bar=False, enable_model_summary=False,
            )  # fmt: skip
        self.trainer.fit_loop.epoch_loop.max_steps = steps
        self.trainer.fit(self.model, rows, ckpt_path=ckpt_path)
        return self


def abandoned(place: Path) -> dict[int, bool]:
    infos = df.Checkpointer(place / "deepfreeze").checkpoints()
    return {info.step: info.abandoned for info in infos}


@pytest.fixture
def alarms(capfd: pytest.CaptureFixture[str]) -> Any:
    """How often a run has said that a new line begins, since it was asked last."""
    return lambda: "".join(capfd.readouterr()).count(ALARM)


def test_a_resume_is_no_new_line(tmp_path: Path, alarms: Any) -> None:
    Fit(tmp_path, save_last="link").to(2)
    Fit(tmp_path, save_last="link").to(4, "last")
    Fit(tmp_path).to(5, str(tmp_path / "step=4.ckpt"))
    Fit(tmp_path).to(6, f"{tmp_path / 'deepfreeze'}@latest")
    assert alarms() == 0
    assert abandoned(tmp_path) == dict.fromkeys(range(1, 7), False)


def test_a_resume_from_an_older_one_abandons_what_came_after(tmp_path: Path, alarms: Any) -> None:
    Fit(tmp_path).to(4)
    Fit(tmp_path, filename="b-{step}").to(3, str(tmp_path / "step=2.ckpt"))
    assert alarms() == 0
    with df.Checkpointer(tmp_path / "deepfreeze") as run:
        assert run.steps() == [1, 2, 3]
        lost = [info.step for info in run.checkpoints() if info.abandoned]
        assert lost == [4, 3]


def test_a_further_fit_of_the_same_trainer_is_no_new_line(tmp_path: Path, alarms: Any) -> None:
    Fit(tmp_path).to(2).to(4)
    assert alarms() == 0
    assert abandoned(tmp_path) == dict.fromkeys(range(1, 5), False)


def test_a_fit_from_nothing_beside_others_is_a_new_line(tmp_path: Path, alarms: Any) -> None:
    Fit(tmp_path).to(2)
    Fit(tmp_path, filename="b-{step}").to(2)
    assert alarms() == 1


def test_lightnings_own_line_loads_the_path_that_lightning_hands_out(tmp_path: Path) -> None:
    done = Fit(tmp_path, monitor="my_loss", save_top_k=1).to(3)
    best = done.saver.best_model_path
    assert Path(best).name == "step=2.ckpt"
    loaded = Line.load_from_checkpoint(best)
    assert loaded.hparams.width == 2
    stored = DeepFreezeCheckpointIO().load_checkpoint(best)["state_dict"]
    assert torch.equal(loaded.net.weight, stored["net.weight"])
    assert not torch.equal(loaded.net.weight, done.model.net.weight)


def test_the_same_line_still_loads_files(tmp_path: Path) -> None:
    done = Fit(tmp_path / "ours").to(1)
    torch.save(done.io.load_checkpoint(tmp_path / "ours" / "step=1.ckpt"), tmp_path / "own.ckpt")
    loaded = Line.load_from_checkpoint(tmp_path / "own.ckpt")
    assert torch.equal(loaded.net.weight, done.model.net.weight)
    with pytest.raises(FileNotFoundError):
        Line.load_from_checkpoint(tmp_path / "none.ckpt")


def test_what_the_callback_saved_is_refused_with_the_line_that_loads_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit = Fit(tmp_path)
    fit.saver, fit.io = DeepFreezeCallback(run), None
    fit.to(2)
    with pytest.raises(df.CheckpointError) as raised:
        Line.load_from_checkpoint(f"{run}@best:my_loss", width=2)
    line = str(raised.value).rpartition("loaded by ")[2]
    model = Line(2)
    exec(line, {"model": model, "df": df})
    assert torch.equal(model.net.weight, df.Checkpointer(run).load(2)["model"]["net.weight"])


def test_metrics_go_with_a_save_and_give_the_best(tmp_path: Path) -> None:
    done = Fit(tmp_path).to(3)
    run = tmp_path / "deepfreeze"
    infos = df.Checkpointer(run).checkpoints()
    assert {info.step: info.metrics for info in infos} == {
        1: {"my_loss": 3.0},
        2: {"my_loss": 1.0},
        3: {"my_loss": 2.0},
    }
    assert df.Checkpointer(run).best("my_loss") == 2
    loaded = done.io.load_checkpoint(f"{run}@best:my_loss")
    assert loaded["global_step"] == 2
    assert torch.equal(
        Line.load_from_checkpoint(f"{run}@best:my_loss:max").net.weight,
        done.io.load_checkpoint(tmp_path / "step=1.ckpt")["state_dict"]["net.weight"],
    )


def test_of_several_processes_one_computes_no_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It alone saves, and would wait for the others; values that are computed already are saved."""
    done = Fit(tmp_path).to(1)

    def computed(_: Any) -> Any:
        raise AssertionError("trainer.callback_metrics was asked")

    monkeypatch.setattr(Trainer, "world_size", 2)
    monkeypatch.setattr(Trainer, "callback_metrics", property(computed))
    done.trainer.save_checkpoint(tmp_path / "more.ckpt")
    done.io.teardown()
    assert df.Checkpointer(tmp_path / "deepfreeze").checkpoints()[0].metrics == {"my_loss": 3.0}
