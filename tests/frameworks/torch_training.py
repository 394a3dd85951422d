"""PyTorch: a module, an optimizer, a scheduler and the random generators, with attach()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import deepfreeze as df
from examples.digest import training_digest

from .training import SEED, STEPS, Options


class Net(nn.Module):
    """Its first layer is frozen, the last two have one weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(128, width).requires_grad_(False)
        self.norm = nn.BatchNorm1d(width)
        self.inner = nn.Linear(width, width)
        self.again = nn.Linear(width, width)
        self.again.weight = self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.frozen(x))
        return self.again(nn.functional.dropout(self.inner(x).relu(), 0.2, self.training))


class Own:
    """A loop of its own."""

    forgettable: ClassVar[tuple[str, ...]] = ("optim", "rng")
    misfit: ClassVar[str] = "net.frozen.weight"
    large_arrays: ClassVar[int] = 4  # two weights, and two moments of one

    def __init__(self, options: Options) -> None:
        df.determinism(options.seed)
        self.net = Net(192 if options.wide else 144)
        trained = [each for each in self.net.parameters() if each.requires_grad]
        self.optim = torch.optim.AdamW(trained, lr=1e-2)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.optim, 1e-2, total_steps=STEPS)
        self.whole: dict[str, Any] = {
            "net": self.net, "optim": self.optim, "sched": self.sched, "rng": df.RNG(),
        }  # fmt: skip
        self.state = {name: each for name, each in self.whole.items() if name != options.forget}
        self.done = 0
        self.ckpt = None if options.run is None else df.Checkpointer(options.run, profile="latency")
        if self.ckpt is not None:
            self.ckpt.attach(self.optim)

    def restore(self, step: int | None) -> int:
        assert self.ckpt is not None
        self.done = self.ckpt.restore(self.state, step) or 0
        return self.done

    def train(self, until: int, saved: Callable[[int], None]) -> None:
        for step in range(self.done + 1, until + 1):
            self.update(step)
            if self.ckpt is not None:
                self.ckpt.save(step, self.state)
                saved(step)
        self.done = until

    def update(self, step: int) -> None:
        generator = torch.Generator().manual_seed(SEED + step)
        images = torch.randn(16, 128, generator=generator)
        self.optim.zero_grad(set_to_none=True)
        self.net(images).square().mean().backward()
        self.optim.step()
        self.sched.step()

    def digest(self) -> str:
        return training_digest(self.whole)

    def close(self) -> None:
        if self.ckpt is not None:
            self.ckpt.close()
