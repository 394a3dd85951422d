"""A fit of Lightning that is stopped behind a save and resumed, beside one that never stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning", reason="of build/frameworks-venv")

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    BaseFinetuning,
    EarlyStopping,
    EMAWeightAveraging,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler

import deepfreeze as df
from deepfreeze.lightning import DeepFreezeCallback

from .test_lightning import StopsAt, steps_in
from .trainer_parts import StoppedError

EPOCH = 4
ROWS = TensorDataset(torch.randn(4 * EPOCH, 8, generator=torch.Generator().manual_seed(1)))


class Net(LightningModule):
    """With dropout, and a loss of which the mean of an epoch is logged."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, width), nn.Dropout(0.5), nn.Linear(width, 1))

    def training_step(self, batch: Any, _: int) -> Any:
        loss = self.net(batch[0]).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        trained = [each for each in self.parameters() if each.requires_grad]
        return torch.optim.AdamW(trained, lr=1e-2)


class Validated(Net):
    """Whose validation draws nothing."""

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("val_loss", self.net(batch[0]).square().mean())


def shuffled() -> StatefulDataLoader[Any]:
    sampler = RandomSampler(ROWS, generator=torch.Generator().manual_seed(2))
    return StatefulDataLoader(ROWS, batch_size=4, sampler=sampler, generator=torch.Generator())


def fitted(make: Callable[[], Net], *callbacks: Any, **options: Any) -> tuple[Net, Trainer]:
    """A new module and a new Trainer, both begun from the same seed."""
    torch.manual_seed(0)
    module = make()
    loader = options.pop("loader") if "loader" in options else shuffled()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(
        accelerator="cpu", callbacks=list(callbacks),
        **{"max_epochs": 3, "num_sanity_val_steps": 0, "enable_checkpointing": False, **quiet,
           **options},
    )  # fmt: skip
    valid = DataLoader(ROWS, 8) if isinstance(module, Validated) else None
    trainer.fit(module, loader, valid)
    return module, trainer


def assert_resumes(
    run: Path,
    step: int,
    make: Callable[[], Net] = Net,
    callbacks: Callable[[], list[Any]] = list,
    **options: Any,
) -> None:
    """A fit that stops once that step is saved resumes as if it had not, to the bit."""
    whole, undisturbed = fitted(make, *callbacks(), **options)
    with pytest.raises(StoppedError):
        fitted(make, *callbacks(), DeepFreezeCallback(run), StopsAt(step), **options)
    assert steps_in(run)[-1] == step
    resumed, trainer = fitted(make, *callbacks(), DeepFreezeCallback(run), **options)
    assert trainer.global_step == undisturbed.global_step
    assert trainer.current_epoch == undisturbed.current_epoch
    for name, tensor in resumed.state_dict().items():
        assert torch.equal(tensor, whole.state_dict()[name]), name
    for one, other in zip(trainer.optimizers, undisturbed.optimizers, strict=True):
        assert one.param_groups[0]["lr"] == other.param_groups[0]["lr"]


@pytest.mark.parametrize("step", [3, 4, 5, 8])
def test_an_epochs_end_is_a_step_like_any_other(tmp_path: Path, step: int) -> None:
    assert_resumes(tmp_path / "run", step)


@pytest.mark.parametrize("step", [2, 3, 6])
def test_an_epoch_of_fewer_batches_ends_where_it_would_have(tmp_path: Path, step: int) -> None:
    assert_resumes(tmp_path / "run", step, limit_train_batches=3)


def test_a_training_by_steps_alone(tmp_path: Path) -> None:
    for step in (3, 4, 5):
        options = {"max_epochs": -1, "max_steps": 10}
        assert_resumes(tmp_path / str(step), step, **options)


def test_a_finished_fit_is_not_begun_again(tmp_path: Path) -> None:
    def stops_after(epochs: int) -> int:
        freeze = DeepFreezeCallback(tmp_path / "run")
        _, trainer = fitted(Net, freeze, max_epochs=epochs, limit_train_batches=3)
        return trainer.global_step

    assert [stops_after(epochs) for epochs in (1, 1, 1, 2)] == [3, 3, 3, 6]


@pytest.mark.parametrize("step", [2, 3, 4])
def test_what_monitors_a_metric_has_seen_it(tmp_path: Path, step: int) -> None:
    class Plateau(Validated):
        def configure_optimizers(self) -> Any:
            optim = super().configure_optimizers()
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optim, patience=0, factor=0.1)
            return {
                "optimizer": optim,
                "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"},
            }

    def monitors() -> list[Any]:
        trained = EarlyStopping("loss_epoch", patience=9, check_on_train_epoch_end=True)
        return [trained, EarlyStopping("val_loss", patience=9)]

    interval = {} if step == 4 else {"val_check_interval": 2}
    assert_resumes(tmp_path / "run", step, Plateau, monitors, **interval)


def test_the_best_is_the_step_that_was_validated(tmp_path: Path) -> None:
    losses = [0.9, 0.1, 0.8, 0.7]

    class Told(Validated):
        def validation_step(self, *_: Any) -> None:
            self.log("val_loss", losses[self.current_epoch])

    rules = {"every": df.every(steps=2), "keep": df.keep(last=1, best=("val_loss", "min"))}
    fitted(Told, DeepFreezeCallback(tmp_path, **rules), max_epochs=4)
    with df.Checkpointer(tmp_path) as ckpt:
        kept = [(each.step, round(each.metrics["val_loss"], 3)) for each in ckpt.checkpoints()]
    assert kept == [(4 * EPOCH, 0.7), (2 * EPOCH, 0.1)]


def test_a_metric_goes_with_one_save(tmp_path: Path) -> None:
    fitted(Validated, DeepFreezeCallback(tmp_path), max_steps=EPOCH + 1)
    with df.Checkpointer(tmp_path) as ckpt:
        told = {each.step: set(each.metrics) for each in ckpt.checkpoints()}
    assert "val_loss" in told[EPOCH]
    assert "val_loss" not in told[EPOCH + 1]
    assert "loss_step" in told[EPOCH + 1]


def test_the_modules_own_hook_comes_before_the_save(tmp_path: Path) -> None:
    class Clips(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("average", torch.zeros(4, 8))

        def on_train_batch_end(self, *_: Any) -> None:
            with torch.no_grad():
                self.net[0].weight.clamp_(-0.1, 0.1)
                self.average.lerp_(self.net[0].weight, 0.1)

    assert_resumes(tmp_path / "run", 3, Clips)


@pytest.mark.parametrize("step", [3, 4])
def test_an_average_in_the_place_of_the_weights_is_kept(tmp_path: Path, step: int) -> None:
    def average() -> list[Any]:
        return [EMAWeightAveraging(decay=0.9)]

    assert_resumes(tmp_path / "run", step, Validated, average)  # it ends with the average


def test_a_weight_that_a_hook_replaces_in_place_is_kept(tmp_path: Path) -> None:
    class Swaps(Net):
        def on_save_checkpoint(self, checkpoint: Any) -> None:
            checkpoint["state_dict"]["net.2.bias"] = torch.full((1,), 7.0)

        def on_load_checkpoint(self, checkpoint: Any) -> None:
            self.loaded = checkpoint["state_dict"]["net.2.bias"]

    fitted(Swaps, DeepFreezeCallback(tmp_path), max_steps=1)
    module, _ = fitted(Swaps, DeepFreezeCallback(tmp_path), max_steps=2)
    assert module.loaded.tolist() == [7.0]
    assert module.net[2].bias.item() < 1


class Unfreezes(BaseFinetuning):
    def freeze_before_training(self, module: Any) -> None:
        self.freeze(module.net[0])

    def finetune_function(self, module: Any, epoch: int, optimizer: Any) -> None:
        if epoch == 1:
            self.unfreeze_and_add_param_group(module.net[0], optimizer)


@pytest.mark.parametrize("step", [6, 8])
def test_callbacks_have_their_part_in_what_is_restored(tmp_path: Path, step: int) -> None:
    assert_resumes(tmp_path / "finetuning", step, Net, lambda: [Unfreezes()])

    def averaging() -> list[Any]:
        return [StochasticWeightAveraging(1e-3, swa_epoch_start=1)]

    assert_resumes(tmp_path / "averaging", step, Net, averaging)


def test_callbacks_have_it_in_a_branch_too(tmp_path: Path) -> None:
    whole, _ = fitted(Net, Unfreezes(), DeepFreezeCallback(tmp_path / "a"))
    branch = DeepFreezeCallback(tmp_path / "b", parent=(tmp_path / "a", 6))
    again, _ = fitted(Net, Unfreezes(), branch)
    assert steps_in(tmp_path / "b")[0] == 7
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, whole.state_dict()[name]), name


@pytest.mark.parametrize(
    "callback",
    [lambda: EMAWeightAveraging(decay=0.9), lambda: StochasticWeightAveraging(1e-3, 1)],
    ids=["EMA", "SWA"],
)
@pytest.mark.parametrize("steps", [2 * EPOCH, 2 * EPOCH - 1])
def test_the_last_save_is_whole_though_weights_are_exchanged(
    tmp_path: Path, callback: Callable[[], Any], steps: int
) -> None:
    freeze = DeepFreezeCallback(tmp_path, profile="latency")
    fitted(lambda: Validated(30_000), callback(), freeze, max_epochs=2, max_steps=steps)
    assert freeze.checkpointer is not None
    assert freeze.checkpointer.failed_saves == 0
    assert steps_in(tmp_path)[-1] == steps


def test_hooks_are_told_the_step_that_was_saved(tmp_path: Path) -> None:
    class Told(Net):
        seen = ()

        def on_load_checkpoint(self, checkpoint: Any) -> None:
            self.seen = (checkpoint["epoch"], checkpoint["global_step"])

    fitted(Told, DeepFreezeCallback(tmp_path), max_steps=EPOCH + 2)
    module, _ = fitted(Told, DeepFreezeCallback(tmp_path), max_steps=EPOCH + 3)
    assert module.seen == (1, EPOCH + 2)


def test_a_fast_dev_run_touches_no_run(tmp_path: Path) -> None:
    fitted(Validated, DeepFreezeCallback(tmp_path / "run"), fast_dev_run=1)
    assert not (tmp_path / "run").exists()


def test_a_step_that_is_passed_over_is_made_up_for(tmp_path: Path) -> None:
    class Two(Net):
        """Two steps a batch, of which the run sees every other."""

        automatic_optimization = False

        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, _: int) -> None:
            for _ in range(2):
                loss = self.net(batch[0]).square().mean()
                self.optimizers().zero_grad()
                self.manual_backward(loss)
                self.optimizers().step()

    fitted(Two, DeepFreezeCallback(tmp_path, every=df.every(steps=5)), max_epochs=2)
    assert steps_in(tmp_path) == [6, 10, 16]


def test_a_best_of_lightnings_is_what_its_run_says(tmp_path: Path) -> None:
    """ModelCheckpoint beside the callback has noted the file that it made at this step."""
    scores = [0.9, 0.5, 0.1, 0.8, 0.8]

    class Scored(Net):
        def training_step(self, batch: Any, index: int) -> Any:
            self.log("score", scores[self.trainer.global_step])
            return super().training_step(batch, index)

    def saver() -> ModelCheckpoint:
        return ModelCheckpoint(
            tmp_path / "own", filename="{step}", monitor="score", every_n_train_steps=1
        )

    options = {"enable_checkpointing": True, "max_steps": 5}
    with pytest.raises(StoppedError):
        fitted(Scored, saver(), DeepFreezeCallback(tmp_path / "run"), StopsAt(3), **options)
    last = saver()
    fitted(Scored, last, DeepFreezeCallback(tmp_path / "run"), **options)
    assert Path(last.best_model_path).name == "step=3.ckpt"
    assert Path(last.best_model_path).exists()


class Numbers(IterableDataset[torch.Tensor]):
    """Without a length, and with a state."""

    def __init__(self) -> None:
        self.next, self.begins = 0, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.next, self.begins = self.begins, 0
        while self.next < EPOCH:
            self.next += 1
            yield torch.full((8,), self.next - 1.0)

    def state_dict(self) -> dict[str, Any]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.begins = state["next"]


@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_a_batch_that_was_fetched_ahead_is_trained_on(tmp_path: Path, step: int) -> None:
    seen: list[int] = []

    class Sees(Net):
        def training_step(self, batch: Any, index: int) -> Any:
            seen.append(int(batch[0, 0]))
            return super().training_step([batch], index)

    def loader() -> StatefulDataLoader[Any]:
        return StatefulDataLoader(Numbers(), batch_size=1)

    freeze = DeepFreezeCallback(tmp_path)
    with pytest.raises(StoppedError):
        fitted(Sees, freeze, StopsAt(step), loader=loader(), max_epochs=2)
    fitted(Sees, DeepFreezeCallback(tmp_path), loader=loader(), max_epochs=2)
    assert seen == 2 * list(range(EPOCH))


def test_a_batch_that_cannot_be_stored_is_warned_of(tmp_path: Path) -> None:
    class Box:
        def __init__(self, rows: list[torch.Tensor]) -> None:
            self.rows = torch.stack(rows)

    class Unpacks(Net):
        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(batch.rows).square().mean()

    loader = StatefulDataLoader(Numbers(), batch_size=1, collate_fn=Box)
    with pytest.warns(UserWarning, match="fetched ahead"):
        fitted(Unpacks, DeepFreezeCallback(tmp_path), loader=loader, max_epochs=1)


def test_a_sigterm_comes_behind_the_save_that_was_due(tmp_path: Path) -> None:
    class Terminates(Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 2:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        fitted(Net, DeepFreezeCallback(tmp_path), Terminates())
    assert steps_in(tmp_path) == [1, 2]


def test_one_trainer_fits_twice_and_validates(tmp_path: Path) -> None:
    freeze = DeepFreezeCallback(tmp_path)
    module, trainer = fitted(Validated, freeze, max_epochs=1)
    trainer.validate(module, DataLoader(ROWS, 8))
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, shuffled(), DataLoader(ROWS, 8))
    assert trainer.global_step == 2 * EPOCH
    assert freeze.checkpointer is not None
    assert freeze.checkpointer.last_restore is not None
    assert freeze.checkpointer.last_restore.step == EPOCH
    assert steps_in(tmp_path) == list(range(1, 2 * EPOCH + 1))


def test_a_hook_may_take_all_weights_out(tmp_path: Path) -> None:
    class Lean(Net):
        def on_save_checkpoint(self, checkpoint: Any) -> None:
            del checkpoint["state_dict"]

    assert_resumes(tmp_path, 3, Lean)


def test_the_loops_are_left_as_they_were(tmp_path: Path) -> None:
    _, trainer = fitted(Net, DeepFreezeCallback(tmp_path), max_epochs=1)
    for loop in (trainer.fit_loop, trainer.fit_loop.epoch_loop):
        assert not {"on_advance_end", "on_run_start"} & vars(loop).keys()
