"""PyTorch as in torch_training.py, on a CUDA device."""

from __future__ import annotations

from typing import Any

import torch

from examples.digest import sha256, training_digest

from .torch_training import Own as OnHost
from .training import SEED, Options


class Own(OnHost):
    """The loop of OnHost, which never waits for the device."""

    def __init__(self, options: Options) -> None:
        with torch.device("cuda"):
            super().__init__(options)

    def update(self, step: int) -> None:
        images = torch.randn(16, 128, generator=torch.Generator().manual_seed(SEED + step))
        self.optim.zero_grad(set_to_none=True)
        self.net(images.cuda(non_blocking=True)).square().mean().backward()
        self.optim.step()
        self.sched.step()

    def digest(self) -> str:
        generators: list[Any] = torch.cuda.get_rng_state_all()
        return sha256(training_digest(self.whole), generators)
