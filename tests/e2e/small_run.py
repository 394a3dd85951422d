"""A small training run in which every kind of state matters, and ways to forget one of them."""

from __future__ import annotations

import os
import random
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import deepfreeze as df
from examples.digest import seed_generators, training_digest
from examples.loader import endless, resumable_loader

SEED = 20
SAMPLES, FEATURES, WIDTH, CLASSES, BATCH = 96, 16, 32, 4, 16
STEPS = 40  # more than six epochs


class SmallNet(nn.Module):
    """Batch normalisation (buffers) and dropout (random numbers)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(FEATURES, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Dropout(0.2)),
            *(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Dropout(0.2)),
            nn.Linear(WIDTH, CLASSES),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class ForgetfulOptimizer:
    """Stands for an optimizer in the state and leaves out one parameter's second moment."""

    def __init__(self, optim: torch.optim.Optimizer) -> None:
        self.optim = optim

    def state_dict(self) -> dict[str, Any]:
        whole = self.optim.state_dict()
        kept = {index: dict(entry) for index, entry in whole["state"].items()}
        kept[0].pop("exp_avg_sq")
        return {"state": kept, "param_groups": whole["param_groups"]}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        state = {index: dict(entry) for index, entry in saved["state"].items()}
        state[0]["exp_avg_sq"] = torch.zeros_like(state[0]["exp_avg"])
        self.optim.load_state_dict({"state": state, "param_groups": saved["param_groups"]})


def forget_buffer(model: SmallNet) -> None:
    """The mistake of registering a buffer with persistent=False."""
    norm = model.layers[1]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_var is not None
    variance = norm.running_var.clone()
    norm.register_buffer("running_var", variance, persistent=False)


class SmallRun:
    """The run before its first step; identical in every process."""

    def __init__(self, forget: str = "") -> None:
        seed_generators(SEED)
        self.model = SmallNet()
        if forget == "buffer":
            forget_buffer(self.model)
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.optim, 1e-2, total_steps=STEPS)
        self.loader = resumable_loader(small_data(), BATCH, SEED)
        self.whole: dict[str, Any] = {
            "model": self.model,
            "optim": self.optim,
            "sched": self.sched,
            "data": self.loader,
            "rng": df.RNG(),
        }

    def saved(self, forget: str) -> dict[str, Any]:
        """The state as given to DeepFreeze."""
        state = {name: item for name, item in self.whole.items() if name != forget}
        if forget == "moment":
            state["optim"] = ForgetfulOptimizer(self.optim)
        return state

    def train_step(self, images: Tensor, labels: Tensor) -> None:
        """Draws from all three generators: jitter, a flip, dropout."""
        jitter = numpy.random.standard_normal(images.shape).astype(numpy.float32)
        images = images + 0.05 * torch.from_numpy(jitter)
        if random.random() < 0.5:
            images = images.flip(1)
        self.optim.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(self.model(images), labels).backward()
        self.optim.step()
        self.sched.step()


def small_data() -> TensorDataset:
    generator = torch.Generator().manual_seed(SEED)
    images = torch.randn(SAMPLES, FEATURES, generator=generator)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    return TensorDataset(images, labels)


def train(
    run: Path, *, forget: str = "", die_after: int = 0, tell: Callable[[int], None] | None = None
) -> str:
    """Resumes or starts, checkpoints every step, returns the digest of the final state.

    `die_after`: SIGKILL itself once that step's checkpoint is durable. `tell`: resumed from where.
    """
    warnings.filterwarnings("ignore", message="'set_vital' is deprecated")  # torchdata's own call
    torch.use_deterministic_algorithms(True)
    small = SmallRun(forget)
    state = small.saved(forget)
    with df.Checkpointer(run, keep=df.keep(last=3)) as ckpt:
        start = ckpt.restore(state) or 0
        if tell is not None:
            tell(start)
        batches = endless(small.loader)
        for step in range(start + 1, STEPS + 1):
            small.train_step(*next(batches))
            handle = ckpt.save(step, state)
            if step == die_after:
                assert handle is not None
                handle.wait("durable")
                os.kill(os.getpid(), signal.SIGKILL)
    return training_digest(small.whole)


def train_without_checkpoints() -> str:
    """The reference."""
    warnings.filterwarnings("ignore", message="'set_vital' is deprecated")  # torchdata's own call
    torch.use_deterministic_algorithms(True)
    small = SmallRun()
    batches = endless(small.loader)
    for _ in range(STEPS):
        small.train_step(*next(batches))
    return training_digest(small.whole)
