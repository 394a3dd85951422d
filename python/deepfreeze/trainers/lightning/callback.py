"""Saves a fit of Lightning while it runs, and resumes it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.utilities.exceptions import MisconfigurationException

import deepfreeze as df
from deepfreeze.base.arguments import absolute, absolute_options
from deepfreeze.trainers.late_rng import LateRNG
from deepfreeze.trainers.lightning.moments import Moments
from deepfreeze.trainers.lightning.state import Loaders, load_callbacks, resume_averaging, state_of
from deepfreeze.trainers.passed_steps import PassedSteps
from deepfreeze.trainers.tested_versions import warn_of_other_release


class DeepFreezeCallback(Callback):  # type: ignore[misc]
    """Saves after batches in which an optimizer has stepped; a fit resumes from the run.

    `run` is the run's directory, and `options` are those of df.Checkpointer. The steps of the run,
    and of `every`, are `trainer.global_step`, as for ModelCheckpoint. Without `every` each step is
    saved; a due step that had to be passed over is made up for by the next. The metrics of a save
    are the values that were logged since the save before.

    A save comes after validation and all hooks of its batch; at an epoch's last batch, after the
    hooks of the epoch. A fit restores the newest checkpoint that verifies once strategy, model and
    optimizers are set up. Callbacks are restored before that, because they may take part in the
    setup. `checkpointer.last_restore` tells which checkpoint it was. MismatchError if it does not
    fit; nothing but callbacks is modified then. Give a Trainer one such callback, the last in its
    list. It does nothing in a fast_dev_run.
    """

    def __init__(self, run: str | os.PathLike[str], **options: Any) -> None:
        warn_of_other_release("lightning")
        self._run = absolute(run, "run")
        self._options = absolute_options(options)
        self._rng = LateRNG()
        self._loaders = Loaders()
        self._moments: Moments | None = None
        self._resumes = False
        self._saved = 0  # the global step
        self._passed = PassedSteps(None)
        self._logged: dict[str, object] = {}  # the values at the last save
        self.checkpointer: df.Checkpointer | None = None  # while a fit runs

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._run}>"

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Opens the run, once the processes of the job know each other."""
        if stage != "fit":
            return
        self._close()
        self.checkpointer, self._resumes = None, False
        if not trainer.fast_dev_run:
            self.checkpointer = df.Checkpointer(self._run, **self._options)
            if trainer.ckpt_path is None:
                load_callbacks(trainer, self, self.checkpointer, self._options.get("parent"))

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Restores, and attaches the optimizers."""
        ckpt = self.checkpointer
        if ckpt is None:
            return
        if trainer.ckpt_path is None:
            self._resumes = ckpt.restore(self._state(trainer)) is not None
        elif ckpt.latest() is not None:
            raise MisconfigurationException(
                f"{self._run} holds step {ckpt.latest()}, and ckpt_path={trainer.ckpt_path!r} was "
                "given: resume from one of them"
            )
        for optimizer in trainer.optimizers:
            ckpt.attach(optimizer)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Restores the random generators; now the loaders have made the draws of their start."""
        if self.checkpointer is None:
            return
        self._saved = trainer.global_step
        self._passed = PassedSteps(self._options.get("every"), self._saved)
        self._logged = {}
        self._moments = Moments(
            trainer.fit_loop, lambda: self._batch_over(trainer), lambda: self._epoch_over(trainer)
        )
        if self._resumes:
            self._loaders.follow_epoch()
            self._loaders.give_fetched()
            if not self._moments.resumes():
                resume_averaging(trainer)
            self._rng.put_back()
            self._resumes = False

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Fences: callbacks may put an average in place of the weights."""
        self._fence()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Waits for saves in flight: Lightning calls no teardown after an error."""
        self._close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Waits for saves in flight."""
        if stage == "fit":
            self._close()

    def _batch_over(self, trainer: Any) -> None:
        self._step(trainer)
        if trainer.should_stop or trainer.fit_loop.epoch_loop._is_training_done:
            self._fence()

    def _epoch_over(self, trainer: Any) -> None:
        """Hooks at an epoch's begin or end may write weights, and run before any hook of ours."""
        self._step(trainer)
        self._fence()

    def _step(self, trainer: Any) -> None:
        """Saves, if the policy says so; not in the middle of an accumulation."""
        ckpt, step = self.checkpointer, trainer.global_step
        if ckpt is None or step == self._saved:
            return
        self._saved = step
        save = ckpt.save if self._passed.passed(step) else ckpt.step
        save(step, self._state(trainer), _Metrics(trainer, self._logged))

    def _state(self, trainer: Any) -> dict[str, Any]:
        return state_of(trainer, self._loaders, self._rng, self)

    def _fence(self) -> None:
        if self.checkpointer is not None and self._moments is not None:
            self.checkpointer.fence()

    def _close(self) -> None:
        if self._moments is not None:
            self._moments.leave()
            self._moments = None
        if self.checkpointer is not None:
            self.checkpointer.close()


class _Metrics(Mapping[str, float]):
    """The logged values, gathered on demand: that takes a while, and most steps save none.

    A value that is the same object as in `before` was not logged since, so it is left out.
    """

    def __init__(self, trainer: Any, before: dict[str, object]) -> None:
        self._trainer = trainer
        self._before = before

    @cached_property
    def _fresh(self) -> dict[str, float]:
        logged, before = dict(self._trainer.callback_metrics), dict(self._before)
        self._before.clear()
        self._before.update(logged)
        return {
            name: float(value) for name, value in logged.items() if before.get(name) is not value
        }

    def __getitem__(self, name: str) -> float:
        return self._fresh[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fresh)

    def __len__(self) -> int:
        return len(self._fresh)
