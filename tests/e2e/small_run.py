"""A small training run in which every kind of state matters, and ways to forget one of them."""

from __future__ import annotations

import logging
import os
import random
import signal
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import deepfreeze as df
from deepfreeze.saving.attached import LazyCapture
from examples.digest import seed_generators, training_digest
from examples.loader import endless, resumable_loader

SEED = 20
# Two layers of more than 64 KiB: less is copied before save() returns, attached or not.
SAMPLES, FEATURES, WIDTH, CLASSES, BATCH = 96, 128, 144, 4, 16
STEPS = 40  # more than six epochs
MODES = ("window", "after_update", "fused", "eager")
WHOLE_EVERY = 4  # steps, without fences
SETTLED_EVERY = 3  # steps, in mode after_update


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
        # Not the optimizer itself: an object's held objects are stored, whatever its state_dict()
        # gives.
        self._whole, self._load = optim.state_dict, optim.load_state_dict

    def state_dict(self) -> dict[str, Any]:
        whole = self._whole()
        kept = {index: dict(entry) for index, entry in whole["state"].items()}
        kept[0].pop("exp_avg_sq")
        return {"state": kept, "param_groups": whole["param_groups"]}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        state = {index: dict(entry) for index, entry in saved["state"].items()}
        state[0]["exp_avg_sq"] = torch.zeros_like(state[0]["exp_avg"])
        self._load({"state": state, "param_groups": saved["param_groups"]})


def forget_buffer(model: SmallNet) -> None:
    """The mistake of registering a buffer with persistent=False."""
    norm = model.layers[1]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_var is not None
    variance = norm.running_var.clone()
    norm.register_buffer("running_var", variance, persistent=False)


class SmallRun:
    """The run before its first step; identical in every process."""

    def __init__(self, mode: str, forget: str = "") -> None:
        seed_generators(SEED)
        self.mode = mode
        self.model = SmallNet()
        if forget == "buffer":
            forget_buffer(self.model)
        self.optims = self._make_optimizers()
        self.scheds = [
            torch.optim.lr_scheduler.OneCycleLR(optim, 1e-2, total_steps=STEPS)
            for optim in self.optims
        ]
        self.loader = resumable_loader(small_data(), BATCH, SEED)
        self.whole: dict[str, Any] = {
            "model": self.model,
            **{f"optim{index}": optim for index, optim in enumerate(self.optims)},
            **{f"sched{index}": sched for index, sched in enumerate(self.scheds)},
            "data": self.loader,
            "rng": df.RNG(),
        }

    def _make_optimizers(self) -> list[torch.optim.Optimizer]:
        """One of all parameters, or of each its own, which steps inside backward()."""
        parameters = list(self.model.parameters())
        if self.mode != "after_update":
            return [torch.optim.AdamW(parameters, lr=1e-2, fused=self.mode == "fused")]
        optims: list[torch.optim.Optimizer] = []
        for parameter in parameters:
            optim = torch.optim.AdamW([parameter], lr=1e-2)
            parameter.register_post_accumulate_grad_hook(step_inside_backward(optim))
            optims.append(optim)
        return optims

    def attach(self, ckpt: df.Checkpointer) -> None:
        """As the mode says."""
        if self.mode != "eager":
            for optim in self.optims:
                ckpt.attach(optim, "after_update" if self.mode == "after_update" else "window")

    def saved(self, forget: str) -> dict[str, Any]:
        """The state as given to DeepFreeze."""
        state = {name: item for name, item in self.whole.items() if name != forget}
        if forget == "moment":
            state["optim0"] = ForgetfulOptimizer(self.optims[0])
        return state

    def train_step(self, images: Tensor, labels: Tensor) -> None:
        """Draws from all three generators: jitter, a flip, dropout."""
        jitter = numpy.random.standard_normal(images.shape).astype(numpy.float32)
        images = images + 0.05 * torch.from_numpy(jitter)
        if random.random() < 0.5:
            images = images.flip(1)
        self.model.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(self.model(images), labels).backward()
        if self.mode != "after_update":
            self.optims[0].step()
        for sched in self.scheds:
            sched.step()


def step_inside_backward(optim: torch.optim.Optimizer) -> Callable[[Tensor], None]:
    """The hook of one parameter, called once its gradient is complete."""

    def hook(_: Tensor) -> None:
        optim.step()
        optim.zero_grad(set_to_none=True)

    return hook


def small_data() -> TensorDataset:
    generator = torch.Generator().manual_seed(SEED)
    images = torch.randn(SAMPLES, FEATURES, generator=generator)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    return TensorDataset(images, labels)


@dataclass(frozen=True)
class Order:
    """The instructions for one process."""

    mode: str = "eager"
    forget: str = ""  # "fence": nothing waits before the optimizer's step
    from_step: int | None = None  # restored; default: the newest
    die_after: int = 0  # SIGKILL itself once that step's checkpoint is durable


@dataclass
class Ending:
    """The results of a run that came to its end."""

    digest: str = ""
    saves: int = 0
    lazy: int = 0  # saves of which bytes were captured after save() had returned
    fenced: int = 0  # saves for which a fence stood
    early: int = 0  # saves whose capture began inside backward()
    torn: int = 0  # saves that failed because of it
    durable: list[int] = field(default_factory=list)  # steps that were committed

    def count(self, handles: Sequence[df.SaveHandle]) -> None:
        """Adds up the outcomes of the saves."""
        for handle in handles:
            status = handle.status()
            self.saves += 1
            self.lazy += status.guarded_bytes > 0
            self.fenced += status.fence_seconds > 0
            self.early += status.early
            self.torn += isinstance(handle.durable.exception(), df.TornCaptureError)
            self.durable += [handle.step] if status.durable else []


def train(run: Path, order: Order, tell: Callable[[int], None]) -> Ending:
    """Resumes or starts, reports the first step, checkpoints every step."""
    make_deterministic()
    small = SmallRun(order.mode, order.forget)
    state = small.saved(order.forget)
    handles = []
    keep = None if order.forget == "fence" else df.keep(last=3)
    with df.Checkpointer(run, keep=keep, profile="latency") as ckpt:
        start = ckpt.restore(state, step=order.from_step) or 0
        tell(start)
        if order.forget == "fence":
            remove_fences(ckpt)
        small.attach(ckpt)
        batches = endless(small.loader)
        for step in range(start + 1, STEPS + 1):
            small.train_step(*next(batches))
            handle = save(ckpt, step, state, order)
            handles.append(handle)
            if step == order.die_after:
                handle.wait("durable")
                os.kill(os.getpid(), signal.SIGKILL)
    assert ckpt.failed_saves == 0 or order.forget == "fence"
    ending = Ending(training_digest(small.whole))
    ending.count(handles)
    assert len(ending.durable) + ending.torn == len(handles), "a save failed for another reason"
    return ending


def save(ckpt: df.Checkpointer, step: int, state: dict[str, Any], order: Order) -> df.SaveHandle:
    """Saves by step() if that announces the next save; never in another way than ordered."""
    handle = ckpt.step(step, state) if order.mode == "after_update" else ckpt.save(step, state)
    assert handle is not None
    is_lazy = handle.status().guarded_bytes > 0
    assert is_lazy == (order.mode != "eager"), f"step {step} was captured otherwise than ordered"
    if order.forget == "fence" and step % WHOLE_EVERY == 0:
        handle.wait("captured")  # before anything can tear it: some must be there to resume from
    if order.mode == "after_update" and step % SETTLED_EVERY == 0:
        handle.wait("durable")  # only then is there memory for a capture that begins early
    return handle


class AlwaysEmpty(set[str]):
    """Without it tensors that were once torn would be copied at once, and none would be torn."""

    def update(self, *_: object) -> None:
        """Adds nothing."""


class Unfenced(LazyCapture):
    """Lets every update pass."""

    def fence(self, guard: int) -> None:
        """Does not wait."""


def remove_fences(ckpt: df.Checkpointer) -> None:
    """The mistake that the witness must find: for attach() calls that come after."""
    logging.getLogger("deepfreeze").setLevel(logging.CRITICAL)
    ckpt._lazy._guards.eager = AlwaysEmpty()
    ckpt._lazy.__class__ = Unfenced


def make_deterministic() -> None:
    """And quiet."""
    warnings.filterwarnings("ignore", message="'set_vital' is deprecated")  # torchdata's own call
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def train_without_checkpoints(mode: str) -> str:
    """The reference."""
    make_deterministic()
    small = SmallRun(mode)
    batches = endless(small.loader)
    for _ in range(STEPS):
        small.train_step(*next(batches))
    return training_digest(small.whole)
