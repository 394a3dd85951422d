"""What DeepFreeze's savers have in common, whatever framework the state is of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy

import deepfreeze as df
from lab.writers.saver import Pending, StorageSaver, nothing
from lab.writers.values import Array


class DeepFreezeSaver(StorageSaver):
    """By the eager path, unless a subclass has something attached.

    Nothing trains here. So what is attached is copied in the fence, which `captured` is, and the
    stall of both paths is the copy; they differ in what save() itself takes. What the window
    hides behind a training step, and capture after each update, is for lab/experiments/window.py.
    """

    profile: Literal["auto", "latency"] = "auto"
    checkpointer: df.Checkpointer | None = None

    @abstractmethod
    def state(self) -> object:
        """What is saved as `state`: each tensor has its own name below that."""

    def attached(self) -> Sequence[object]:
        return ()

    def arena_max(self) -> int | None:
        return None

    def open(self, directory: Path) -> None:
        self.checkpointer = df.Checkpointer(
            directory, keep=df.keep(last=1), profile=self.profile, arena_bytes_max=self.arena_max()
        )
        for each in self.attached():
            self.checkpointer.attach(each)
        self.checkpointer.prewarm({"state": self.state()})

    def save(self, directory: Path, step: int) -> Pending:
        assert self.checkpointer is not None
        handle = self.checkpointer.save(step, {"state": self.state()})
        assert handle is not None
        captured = self.checkpointer.fence if self.attached() else nothing
        return Pending(captured, lambda: handle.wait("durable"))

    def place(self, directory: Path, step: int) -> Path:
        """Of the only attempt at this step."""
        return next(directory.glob(f"step-{step:012}-*"))

    def remove(self, directory: Path, step: int) -> None:
        """It does so itself."""

    def restore(self, directory: Path, step: int) -> None:
        with df.Checkpointer(directory) as checkpointer:
            checkpointer.restore({"state": self.state()}, step)

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        with df.Checkpointer(directory) as checkpointer:
            found = checkpointer.load(step, keys=[f"state.{name}"])["state"][name]
        return numpy.asarray(found)

    def close(self) -> None:
        if self.checkpointer is not None:
            self.checkpointer.close()
