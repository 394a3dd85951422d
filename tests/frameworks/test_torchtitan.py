"""torchtitan's checkpoint manager: the calls of its trainer, in that order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchtitan", reason="of build/frameworks-venv")

import torch
from torch import nn
from torch.utils.data import IterableDataset
from torchtitan.components.dataloader import ParallelAwareDataloader
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer
from torchtitan.components.optimizer.optimizer import ParamGroupConfig

import deepfreeze as df
from deepfreeze.torchtitan import DeepFreezeCheckpointManager

ROOT = Path(__file__).resolve().parents[2]
STEPS = 6


class Rows(IterableDataset[torch.Tensor]):
    """Continues from its position."""

    def __init__(self) -> None:
        self.drawn = 0

    def __iter__(self) -> Any:
        while True:
            self.drawn += 1
            yield torch.full((64,), float(self.drawn)).sin()

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.drawn = state["drawn"]


class Trainer:
    """Calls its manager as torchtitan's trainer does."""

    def __init__(self, place: Path, seed: int = 1, **options: Any) -> None:
        torch.manual_seed(seed)
        self.step = 0
        layers = [nn.Linear(64, 256), nn.Dropout(0.2), nn.Linear(256, 64)]
        self.model = nn.Sequential(*layers)
        group = ParamGroupConfig(
            pattern=".*", optimizer_name="AdamW", optimizer_kwargs={"lr": 1e-2}
        )
        config = OptimizersContainer.Config(param_groups=[group], implementation="foreach")
        self.optimizers = config.build(model_parts=[self.model])
        self.schedulers = LRSchedulersContainer.Config(warmup_steps=3).build(
            optimizers=self.optimizers, training_steps=STEPS
        )
        self.loader = ParallelAwareDataloader(Rows(), dp_rank=0, dp_world_size=1, batch_size=4)
        settings = {"enable": True, "folder": "ckpt", "interval": 2, **options}
        self.checkpointer = DeepFreezeCheckpointManager.Config(**settings).build(
            dataloader=self.loader, model_parts=[self.model], optimizers=self.optimizers,
            lr_schedulers=self.schedulers, states={"train_state": self}, sd_adapter=None,
            base_folder=str(place),
        )  # fmt: skip

    def train(self, steps: int = STEPS, load_step: int = -1) -> list[torch.Tensor]:
        self.loaded = self.checkpointer.load(step=load_step)
        batches = iter(self.loader)
        while self.step < steps:
            self.step += 1
            self.optimizers.zero_grad()
            self.model(next(batches)).square().mean().backward()
            self.checkpointer.maybe_wait_for_staging()
            self.optimizers.step()
            self.schedulers.step()
            self.checkpointer.save(self.step, last_step=self.step == STEPS)
        self.checkpointer.maybe_wait_for_saving()
        self.checkpointer.close()
        return [each.detach().clone() for each in self.model.parameters()]

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, a, b))


def steps_of(place: Path) -> list[int]:
    with df.Checkpointer(place / "ckpt") as ckpt:
        return ckpt.steps()


def test_a_resumed_training_ends_as_one_that_was_not_stopped(tmp_path: Path) -> None:
    whole = Trainer(tmp_path / "whole").train()
    first = Trainer(tmp_path / "run")
    first.train(5)
    assert not first.loaded
    assert steps_of(tmp_path / "run") == [2, 4]
    resumed = Trainer(tmp_path / "run", seed=7)
    assert same(resumed.train(), whole)
    assert resumed.loaded
    assert steps_of(tmp_path / "run") == [2, 4, 6]


def test_options_of_torchtitan(tmp_path: Path) -> None:
    Trainer(tmp_path / "a", keep_latest_k=2, enable_first_step_checkpoint=True).train(5)
    assert steps_of(tmp_path / "a") == [2, 4]
    Trainer(tmp_path / "b", interval=4, enable_first_step_checkpoint=True).train(5)
    assert steps_of(tmp_path / "b") == [1, 4]
    Trainer(tmp_path / "c", load_only=True).train()
    assert steps_of(tmp_path / "c") == []
    off = Trainer(tmp_path / "d", enable=False)
    off.train(2)
    assert not (tmp_path / "d").exists()


def test_a_step_is_chosen_and_parts_are_left_out(tmp_path: Path) -> None:
    Trainer(tmp_path).train(5)
    again = Trainer(tmp_path, seed=3, exclude_from_loading=["train_state", "lr_scheduler"])
    assert again.checkpointer.load(2)
    assert again.step == 0
    again.checkpointer.close()
    with df.Checkpointer(tmp_path / "ckpt") as ckpt:
        stored = ckpt.load(2)["model"]["0.weight"]
    assert torch.equal(stored, again.model[0].weight)


def test_another_run_is_where_it_begins(tmp_path: Path) -> None:
    Trainer(tmp_path / "base").train()
    path = str(tmp_path / "base" / "ckpt")
    weights = Trainer(tmp_path / "new", seed=3, initial_load_path=path)
    assert weights.checkpointer.load()
    assert weights.step == 0
    weights.checkpointer.close()
    all_of_it = Trainer(
        tmp_path / "more", seed=3, initial_load_path=path, initial_load_model_only=False
    )
    assert all_of_it.checkpointer.load()
    assert all_of_it.step == STEPS
    assert same(list(weights.model.parameters()), list(all_of_it.model.parameters()))
    all_of_it.checkpointer.close()


def test_a_checkpoint_of_another_run_is_where_it_begins(tmp_path: Path) -> None:
    Trainer(tmp_path / "base").train()
    address = f"{tmp_path / 'base' / 'ckpt'}@2"
    begun = Trainer(
        tmp_path / "new", seed=3, initial_load_path=address, initial_load_model_only=False
    )
    assert begun.checkpointer.load()
    assert begun.step == 2
    begun.checkpointer.close()
    named = Trainer(tmp_path / "best", initial_load_path=address.replace("@2", "@best:loss"))
    with pytest.raises(df.CheckpointError, match="no checkpoint has the metric loss"):
        named.checkpointer.load()
    named.checkpointer.close()


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no step 3"):
        Trainer(tmp_path / "a").train(load_step=3)
    with pytest.raises(FileNotFoundError, match="is no run with a checkpoint"):
        Trainer(tmp_path / "b", initial_load_path=str(tmp_path / "none")).train()
    assert not (tmp_path / "none").exists()
    with pytest.raises(ValueError, match="last_save_in_hf: use deepfreeze import"):
        Trainer(tmp_path / "c", last_save_in_hf=True)


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs/frameworks/torchtitan.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    command = [sys.executable, "-c", program + "\nassert checkpoint.interval == 10\n"]
    subprocess.run(command, cwd=tmp_path, check=True)
