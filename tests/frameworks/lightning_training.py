"""PyTorch Lightning: automatic optimization, with DeepFreezeCallback and a loader with a state."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from lightning.pytorch import Callback, LightningModule, Trainer

from deepfreeze.lightning import DeepFreezeCallback
from examples.loader import resumable_loader

from .trainer_parts import BATCH, Parts, Rows, StoppedError, loss_of
from .training import SEED, STEPS, Options

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")


class Module(LightningModule):
    """As its users write one."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.net = parts.net
        self._parts = parts

    def training_step(self, batch: Any, _: int) -> Any:
        return loss_of(self.net, batch)

    def configure_optimizers(self) -> Any:
        scheduler = {"scheduler": self._parts.sched, "interval": "step"}
        return {"optimizer": self._parts.optim, "lr_scheduler": scheduler}


class Forgetful(DeepFreezeCallback):
    """Leaves a part of the state out."""

    forget = ""

    def _state(self, trainer: Any) -> dict[str, Any]:
        return {name: each for name, each in super()._state(trainer).items() if name != self.forget}


class Stops(Callback):
    """As soon as everything is restored."""

    def on_train_start(self, *_: Any) -> None:
        raise StoppedError


class Tells(Callback):
    """When a save has begun."""

    def __init__(self, saved: Callable[[int], None]) -> None:
        self._saved = saved

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self._saved(trainer.global_step)


class Own:
    """A Trainer for each fit."""

    forgettable: ClassVar[tuple[str, ...]] = ("optimizers", "rng", "loaders")
    misfit: ClassVar[str] = "model.net.frozen.weight"
    large_arrays: ClassVar[int] = 4  # two weights, and two moments of one

    def __init__(self, options: Options) -> None:
        self.parts = Parts(options)
        self.module = Module(self.parts)
        self.options = options
        self.begins_at: int | None = None  # a step of the run, not the newest
        self.step = 0

    def restore(self, step: int | None) -> int:
        self.begins_at = step
        with contextlib.suppress(StoppedError):
            self._fit(STEPS + 1, Stops())
        return self.step

    def train(self, until: int, saved: Callable[[int], None]) -> None:
        self._fit(until, Tells(saved))

    def _fit(self, until: int, other: Callback) -> None:
        ours = self._callbacks()
        trainer = Trainer(
            accelerator="cpu", max_steps=until, callbacks=[*ours, other], logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        try:
            trainer.fit(self.module, resumable_loader(Rows(), BATCH, SEED))
        finally:
            self.step = trainer.global_step

    def _callbacks(self) -> list[Callback]:
        run = self.options.run
        if run is None:
            return []
        ours = Forgetful(run, profile="latency")
        if self.begins_at is not None:
            branch = Path(f"{run}-from-{self.begins_at}")
            ours = Forgetful(branch, profile="latency", parent=(run, self.begins_at))
        ours.forget = self.options.forget
        return [ours]

    def digest(self) -> str:
        return self.parts.digest()

    def close(self) -> None:
        """Each fit has waited."""
