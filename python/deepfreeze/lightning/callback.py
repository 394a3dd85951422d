"""Saves a fit of Lightning while it runs, and resumes it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.utilities.exceptions import MisconfigurationException

import deepfreeze as df
from deepfreeze.late_rng import LateRNG
from deepfreeze.lightning.state import Loaders, state_of
from deepfreeze.tested_versions import warn_where_untested


class DeepFreezeCallback(Callback):  # type: ignore[misc]
    """Saves after batches in which an optimizer has stepped; a fit begins where the run stands.

    `run` is the run's directory, `options` are those of df.Checkpointer: the steps of the run, and
    of `every`, are `trainer.global_step`, as for ModelCheckpoint; without `every` each is saved.
    Metrics are what was logged.

    What a fit restores is the newest checkpoint that verifies, once strategy, model and optimizers
    are set up; `checkpointer.last_restore` tells. MismatchError, before anything is modified, where
    it does not fit. One callback a Trainer, the last one in its list: what callbacks after it
    change in on_train_batch_end() is saved one step later.
    """

    def __init__(self, run: str | os.PathLike[str], **options: Any) -> None:
        warn_where_untested("lightning")
        self._run = run
        self._options = options
        self._rng = LateRNG()
        self._loaders = Loaders()
        self._saved = 0  # the global step
        self.checkpointer: df.Checkpointer | None = None  # while a fit runs

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Opens the run, once the processes of the job know each other."""
        if stage == "fit":
            self._close()
            self.checkpointer = df.Checkpointer(self._run, **self._options)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Restores, and attaches the optimizers."""
        ckpt = self._opened()
        if trainer.ckpt_path is None:
            ckpt.restore(self._state(trainer))
        elif ckpt.latest() is not None:
            raise MisconfigurationException(
                f"{self._run} holds step {ckpt.latest()}, and ckpt_path={trainer.ckpt_path!r} was "
                "given: resume from one of them"
            )
        for optimizer in trainer.optimizers:
            ckpt.attach(optimizer)
        self._saved = trainer.global_step

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Puts the generators back: by now the loaders have drawn what they do when they begin."""
        self._loaders.follow_epoch()
        self._rng.put_back()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Saves, if the policy says so; not in the middle of an accumulation."""
        if trainer.global_step != self._saved:
            self._saved = trainer.global_step
            self._opened().step(self._saved, self._state(trainer), _Metrics(trainer))

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Waits for what is in flight: Lightning calls no teardown now."""
        self._close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Waits for what is in flight."""
        if stage == "fit":
            self._close()

    def _state(self, trainer: Any) -> dict[str, Any]:
        return state_of(trainer, self._loaders, self._rng, self)

    def _opened(self) -> df.Checkpointer:
        assert self.checkpointer is not None
        return self.checkpointer

    def _close(self) -> None:
        if self.checkpointer is not None:
            self.checkpointer.close()


class _Metrics(Mapping[str, float]):
    """What was logged, once somebody asks: to gather it takes a while, and most steps save none."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def __getitem__(self, name: str) -> float:
        return float(self._trainer.callback_metrics[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._trainer.callback_metrics)

    def __len__(self) -> int:
        return len(self._trainer.callback_metrics)
