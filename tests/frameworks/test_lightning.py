"""What is special to Lightning: accumulation, hooks, its own checkpoints, several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader

import deepfreeze as df
from deepfreeze.lightning import DeepFreezeCallback, DeepFreezeCheckpointIO
from examples.loader import resumable_loader

from .lightning_training import Module
from .trainer_examples import example_of, run_python
from .trainer_parts import BATCH, EPOCH, Parts, Rows, StoppedError
from .training import SEED, Options


def fit(*callbacks: Any, steps: int = 4, **options: Any) -> tuple[Trainer, Parts]:
    """A new module and a new Trainer, up to that step."""
    ckpt_path = options.pop("ckpt_path", None)
    loader = options.pop("loader", None) or resumable_loader(Rows(), BATCH, SEED)
    parts = Parts(Options(seed=options.pop("seed", SEED)))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(
        accelerator="cpu", max_steps=steps, callbacks=list(callbacks),
        **{"enable_checkpointing": False, **quiet, **options},
    )  # fmt: skip
    trainer.fit(Module(parts), loader, ckpt_path=ckpt_path)
    return trainer, parts


def steps_in(run: Path) -> list[int]:
    with df.Checkpointer(run) as ckpt:
        return ckpt.steps()


def test_the_example(tmp_path: Path) -> None:
    example = example_of("lightning")
    run_python(example, tmp_path)
    assert steps_in(tmp_path / "runs" / "lightning") == [12, 14, 16]
    assert steps_in(tmp_path / "ckpts" / "deepfreeze") == [4, 8, 12, 16]
    told = run_python(
        example + "\nprint('from', freeze.checkpointer.last_restore.step)\n", tmp_path
    )
    assert "from 16" in told


def test_the_policy_counts_steps_and_not_batches(tmp_path: Path) -> None:
    freeze = DeepFreezeCallback(tmp_path / "run", every=df.every(steps=2))
    fit(freeze, steps=5, accumulate_grad_batches=2)
    assert steps_in(tmp_path / "run") == [2, 4]


def test_most_is_captured_after_the_batch(tmp_path: Path) -> None:
    later = []

    class Looks(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            for handle in freeze.checkpointer.in_flight():
                later.append(handle.status().guarded_bytes)

    freeze = DeepFreezeCallback(tmp_path / "run", profile="latency")
    fit(freeze, Looks())
    assert later
    assert max(later) >= 3 * 144 * 144 * 4  # the shared weight and its moments


def test_metrics_and_callbacks_come_along(tmp_path: Path) -> None:
    class Counts(Callback):
        count = 0

        def on_train_batch_start(self, trainer: Any, module: Any, *_: Any) -> None:
            self.count += 1
            module.log("count", float(self.count))

        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.count = state["count"]

        def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
            del checkpoint["state_dict"]["net.frozen.weight"]
            checkpoint["mine"] = [checkpoint["global_step"]]

        def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
            self.loaded = checkpoint["mine"]

    fit(Counts(), DeepFreezeCallback(tmp_path / "run"), steps=3)
    with df.Checkpointer(tmp_path / "run") as ckpt:
        assert ckpt.checkpoints()[0].metrics["count"] == 3.0
    again = Counts()
    fit(again, DeepFreezeCallback(tmp_path / "run"), steps=4)
    assert (again.count, again.loaded) == (4, [3])


class Epochs(Callback):
    """Which epoch each batch was in, and which have ended."""

    def __init__(self) -> None:
        self.of_batches: list[int] = []
        self.ended: list[int] = []

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        self.of_batches.append(trainer.current_epoch)

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        self.ended.append(trainer.current_epoch)


@pytest.mark.parametrize("stateful", [True, False])
@pytest.mark.parametrize("limit", ["max_steps", "max_epochs"])
@pytest.mark.parametrize("step", [EPOCH - 1, EPOCH, EPOCH + 1])
def test_an_epoch_is_counted_once(tmp_path: Path, stateful: bool, limit: str, step: int) -> None:
    class Stops(Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == step:
                raise StoppedError

    loader = None if stateful else DataLoader(Rows(), BATCH)
    limits = {"max_steps": {"steps": 2 * EPOCH}, "max_epochs": {"steps": -1, "max_epochs": 2}}[
        limit
    ]
    run, before, after = tmp_path / "run", Epochs(), Epochs()
    with pytest.raises(StoppedError):
        fit(DeepFreezeCallback(run), before, Stops(), loader=loader, **limits)
    fit(DeepFreezeCallback(run), after, loader=loader, **limits)
    assert before.of_batches + after.of_batches == EPOCH * [0] + EPOCH * [1]
    ended = before.ended + after.ended
    assert ended == [0, 1] or (not stateful and step == EPOCH and ended == [1])


def test_one_of_two_resumes(tmp_path: Path) -> None:
    trainer, _ = fit(DeepFreezeCallback(tmp_path / "run"))
    trainer.save_checkpoint(tmp_path / "own.ckpt")
    with pytest.raises(MisconfigurationException, match="holds step 4"):
        fit(DeepFreezeCallback(tmp_path / "run"), ckpt_path=tmp_path / "own.ckpt")
    fit(DeepFreezeCallback(tmp_path / "new"), steps=5, ckpt_path=tmp_path / "own.ckpt")
    assert steps_in(tmp_path / "new") == [5]


def test_an_exception_leaves_what_was_saved(tmp_path: Path) -> None:
    class Fails(Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 3:
                raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fit(DeepFreezeCallback(tmp_path / "run"), Fails())
    assert steps_in(tmp_path / "run") == [1, 2, 3]


# Lightning's own checkpoints


def own(place: Path, **options: Any) -> dict[str, Any]:
    """What has a Trainer save its own to that directory."""
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


RANKS = """
import sys
from pathlib import Path
from deepfreeze.lightning import DeepFreezeCallback
from tests.frameworks.test_lightning import fit
from tests.frameworks.trainer_parts import Rows
from torchdata.stateful_dataloader import StatefulDataLoader
import torch
rows = Rows()
loader = StatefulDataLoader(rows, 16, sampler=torch.utils.data.RandomSampler(rows),
                            generator=torch.Generator())
callbacks = [DeepFreezeCallback(sys.argv[1], profile="latency")] if sys.argv[1] else []
trainer, parts = fit(*callbacks, steps=int(sys.argv[2]), seed=int(sys.argv[3]), loader=loader,
                     devices=2, strategy="ddp")
Path(f"rank-{trainer.global_rank}").write_text(parts.digest())
"""


def test_two_ranks_resume_bit_for_bit(tmp_path: Path) -> None:
    def job(run: str, steps: int, seed: int) -> list[str]:
        run_python(RANKS, tmp_path, run, str(steps), str(seed), ranks=2)
        return [(tmp_path / f"rank-{rank}").read_text() for rank in range(2)]

    undisturbed = job("", 8, SEED)
    job(str(tmp_path / "run"), EPOCH - 1, SEED)
    assert job(str(tmp_path / "run"), 8, 77) == undisturbed
