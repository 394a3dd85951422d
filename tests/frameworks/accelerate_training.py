"""Hugging Face Accelerate: a loop of the program's own over the objects that prepare() gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

from deepfreeze.accelerate import AcceleratorCheckpointer

from .trainer_parts import BATCH, EPOCH, Parts, Rows, kept_generators, loss_of
from .training import SEED, Options


class Forgetful(AcceleratorCheckpointer):
    """Leaves a part of the state out."""

    forget = ""

    def _whole(self, state: object) -> dict[str, Any]:
        return {name: each for name, each in super()._whole(state).items() if name != self.forget}


class Own:
    """Batches in an order that follows from the epoch, skipped up to its position."""

    forgettable: ClassVar[tuple[str, ...]] = ("optimizers", "rng")
    misfit: ClassVar[str] = "models.0.frozen.weight"
    large_arrays: ClassVar[int] = 4  # two weights, and two moments of one

    def __init__(self, options: Options) -> None:
        self.parts = Parts(options)
        order = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=SEED)
        with kept_generators():
            self.accelerator = Accelerator(cpu=True, dataloader_config=order)
            loader = DataLoader(
                Rows(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(SEED)
            )
            self.net, self.optim, self.sched, self.loader = self.accelerator.prepare(
                self.parts.net, self.parts.optim, self.parts.sched, loader
            )
        self.done = 0
        self.ckpt: Forgetful | None = None
        if options.run is not None:
            self.ckpt = Forgetful(self.accelerator, options.run, profile="latency")
            self.ckpt.forget = options.forget

    def restore(self, step: int | None) -> int:
        assert self.ckpt is not None
        self.done = self.ckpt.restore(step=step) or 0
        return self.done

    def train(self, until: int, saved: Callable[[int], None]) -> None:
        while self.done < until:
            for batch in self.rest_of_epoch():
                self.update(batch)
                self.done += 1
                if self.ckpt is not None:
                    self.ckpt.step(self.done)
                    saved(self.done)
                if self.done == until:
                    break

    def rest_of_epoch(self) -> Any:
        epoch, batch = divmod(self.done, EPOCH)
        rest = self.accelerator.skip_first_batches(self.loader, batch) if batch else self.loader
        rest.set_epoch(epoch)
        return rest

    def update(self, batch: Any) -> None:
        with self.accelerator.accumulate(self.net):
            self.accelerator.backward(loss_of(self.net, batch))
            self.optim.step()
            self.sched.step()
            self.optim.zero_grad()

    def digest(self) -> str:
        return self.parts.digest()

    def close(self) -> None:
        if self.ckpt is not None:
            self.ckpt.close()
