"""The common parts of the trainings of PyTorch's trainers: a net, its data, a digest."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import deepfreeze as df
from examples.digest import generators, sha256

from .torch_training import Net
from .training import SEED, STEPS, Options

BATCH = 16
EPOCH = 5  # batches: neither the half nor the whole of a training ends with an epoch
FEATURES = 128


class Rows(Dataset[dict[str, Tensor]]):
    """Rows that are equal in every process, whatever was drawn before."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(SEED)
        self._rows = torch.randn(EPOCH * BATCH, FEATURES, generator=generator)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": self._rows[index]}


class Parts:
    """A net, and its optimizer and scheduler."""

    def __init__(self, options: Options) -> None:
        df.determinism(options.seed)
        self.net = Net(192 if options.wide else 144)
        trained = [each for each in self.net.parameters() if each.requires_grad]
        self.optim = torch.optim.AdamW(trained, lr=1e-2)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.optim, 1e-2, total_steps=STEPS)

    def digest(self, **more: Any) -> str:
        """The digest of a training's state; `more` are plain values of its trainer."""
        return sha256(
            self.net.state_dict(),
            self.optim.state_dict(),
            self.sched.state_dict(),
            generators(),
            more,
        )


def loss_of(net: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    loss: Tensor = net(batch["x"]).square().mean()
    return loss


@contextlib.contextmanager
def kept_generators() -> Iterator[None]:
    """Draws and seeds within have no effect outside."""
    states = generators()
    yield
    random.setstate(states["python"])
    numpy.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])


class StoppedError(Exception):
    """Ends a trainer's loop once it has restored."""
