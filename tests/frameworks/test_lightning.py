"""Features special to Lightning: accumulation, hooks, several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning", reason="of build/frameworks-venv")

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader

import deepfreeze as df
from deepfreeze.lightning import DeepFreezeCallback
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
    run_python(example, tmp_path, trainer="lightning")
    assert steps_in(tmp_path / "runs" / "lightning") == [12, 14, 16]
    assert steps_in(tmp_path / "ckpts" / "deepfreeze") == [4, 8, 12, 16]
    told = run_python(
        example + "\nprint('from', freeze.checkpointer.last_restore.step)\n",
        tmp_path,
        trainer="lightning",
    )
    assert "from 16" in told


def test_the_policy_counts_steps_and_not_batches(tmp_path: Path) -> None:
    freeze = DeepFreezeCallback(tmp_path / "run", every=df.every(steps=2))
    fit(freeze, steps=5, accumulate_grad_batches=2)
    assert steps_in(tmp_path / "run") == [2, 4]


def test_most_is_captured_after_the_batch(tmp_path: Path) -> None:
    later = []

    class Looks(Callback):
        def on_train_batch_start(self, *_: Any) -> None:
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


class StopsAt(Callback):
    """Once that step is saved."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self._step:
            raise StoppedError


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
    loader = None if stateful else DataLoader(Rows(), BATCH)
    limits = {"max_steps": {"steps": 2 * EPOCH}, "max_epochs": {"steps": -1, "max_epochs": 2}}[
        limit
    ]
    run, before, after = tmp_path / "run", Epochs(), Epochs()
    with pytest.raises(StoppedError):
        fit(DeepFreezeCallback(run), StopsAt(step), before, loader=loader, **limits)
    fit(DeepFreezeCallback(run), after, loader=loader, **limits)
    assert before.of_batches + after.of_batches == EPOCH * [0] + EPOCH * [1]
    assert before.ended + after.ended == [0, 1]


def test_one_of_two_resumes(tmp_path: Path) -> None:
    trainer, _ = fit(DeepFreezeCallback(tmp_path / "run"))
    trainer.save_checkpoint(tmp_path / "own.ckpt")
    with pytest.raises(MisconfigurationException, match="holds step 4"):
        fit(DeepFreezeCallback(tmp_path / "run"), ckpt_path=tmp_path / "own.ckpt")
    fit(DeepFreezeCallback(tmp_path / "new"), steps=5, ckpt_path=tmp_path / "own.ckpt")
    assert steps_in(tmp_path / "new") == [5]


def test_an_exception_leaves_what_was_saved(tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        fit(DeepFreezeCallback(tmp_path / "run"), StopsAt(3))
    assert steps_in(tmp_path / "run") == [1, 2, 3]


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
        run_python(RANKS, tmp_path, run, str(steps), str(seed), trainer="lightning", ranks=2)
        return [(tmp_path / f"rank-{rank}").read_text() for rank in range(2)]

    undisturbed = job("", 8, SEED)
    job(str(tmp_path / "run"), EPOCH - 1, SEED)
    assert job(str(tmp_path / "run"), 8, 77) == undisturbed
