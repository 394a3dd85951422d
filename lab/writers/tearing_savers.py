"""Savers that only the tearing experiment has: further ways to attach, and a careless thread."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import torch
from torch import Tensor

import deepfreeze as df
from lab.writers.saver import Pending
from lab.writers.torch_savers import DeepFreezeLatency, TorchSave

EVERY = 1 << 20  # steps: no second save comes


class TorchSaveThread(TorchSave):
    """What many programs have: torch.save of the live tensors in a thread, without a copy."""

    def save(self, directory: Path, step: int) -> Pending:
        thread = Thread(target=torch.save, args=(self.tensors, self.place(directory, step)))
        thread.start()
        return Pending(committed=thread.join)


class DeepFreezeAfterUpdate(DeepFreezeLatency):
    """Each parameter has an optimizer, which steps in backward and is captured after that."""

    asked = 3  # what every number is after the step that is saved

    def build(self) -> None:
        super().build()
        self.optimizers = []
        for parameter in self.tensors.values():
            parameter.requires_grad_()
            optimizer = torch.optim.SGD([parameter], 1.0)
            self.optimizers.append(optimizer)
            parameter.register_post_accumulate_grad_hook(stepping(optimizer))

    def open(self, directory: Path) -> None:
        self.checkpointer = df.Checkpointer(directory, every=df.every(steps=EVERY))
        for optimizer in self.optimizers:
            self.checkpointer.attach(optimizer, mode="after_update")

    def backward(self) -> None:
        """Every gradient is -1, and so every step adds 1."""
        total: Any = sum(parameter.sum() for parameter in self.tensors.values())
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        (-total).backward()

    def save(self, directory: Path, step: int) -> Pending:
        """Two more steps: the save is that of the second, and known before it begins."""
        assert self.checkpointer is not None
        self.backward()
        self.checkpointer.step(EVERY - 1, {"state": self.state()})
        self.backward()
        handle = self.checkpointer.step(EVERY, {"state": self.state()})
        assert handle is not None
        return Pending(committed=lambda: handle.wait("durable"))

    def restore(self, directory: Path, step: int) -> None:
        super().restore(directory, EVERY)

    def contents(self) -> dict[str, Any]:
        return {name: tensor.detach().numpy() for name, tensor in self.tensors.items()}


def stepping(optimizer: torch.optim.Optimizer) -> Any:
    def hook(_: Tensor) -> None:
        optimizer.step()

    return hook
