"""Chainer's Trainer: an extension that saves all of it, without stopping it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from deepfreeze.checkpointer import Checkpointer
from deepfreeze.frameworks.in_use.rng import RNG
from deepfreeze.interval.policy import Every, Keep


class DeepFreezeExtension:
    """Saves the whole trainer, and the random generators that its own snapshots leave out.

        extension = DeepFreezeExtension("runs/mlp", every=df.every(steps=100))
        trainer.extend(extension)
        extension.resume(trainer)
        trainer.run()

    A checkpoint holds the values that `trainer.serialize()` gives, as "trainer", and `df.RNG()` as
    "rng"; a step is an iteration. The extension runs after all of Chainer's own, so it includes
    their logs and evaluations of the iteration. Its trigger decides when it is called (each
    iteration, unless extend() is given another), and `every` which of these iterations are saved;
    the default is all. Numbers that the iteration has reported become metrics of the checkpoint,
    for df.keep(best=("main/loss", "min")). A program with generators of its own gives a
    df.RNG(...) of them as `rng`.

    `run` is a directory, or a Checkpointer that the caller has made and will close; then `every`
    and `keep` are its own. run() attaches the optimizers. A save that fails does not stop the
    training: see Checkpointer. For the trainer's thread.
    """

    name: str | None = None  # extend() sets it to the extension's name
    default_name = "DeepFreeze"
    trigger = (1, "iteration")
    priority = -200  # Chainer's snapshots have -100

    def __init__(
        self,
        run: str | os.PathLike[str] | Checkpointer,
        *,
        every: Every | None = None,
        keep: Keep | None = None,
        rng: RNG | None = None,
    ) -> None:
        self._owns = not isinstance(run, Checkpointer)
        if isinstance(run, Checkpointer):
            if every is not None or keep is not None:
                raise ValueError("DeepFreezeExtension: every and keep are the Checkpointer's own")
            self.checkpointer = run
        else:
            self.checkpointer = Checkpointer(run, every=every, keep=keep)
        self._rng = RNG() if rng is None else rng

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.checkpointer.path}>"

    def resume(self, trainer: Any, step: int | None = None, strict: bool = True) -> int:
        """Restores the newest checkpoint, or the one of `step`; returns its iteration, 0 for none.

        Call it before run(), after all extensions were added. Errors as of Checkpointer.restore().
        """
        return self.checkpointer.restore(self._state_of(trainer), step, strict=strict) or 0

    def initialize(self, trainer: Any) -> None:
        """Chainer calls it as run() begins."""
        from deepfreeze.frameworks.chainer.guard import has_hooks

        for optimizer in trainer.updater.get_all_optimizers().values():
            if has_hooks(optimizer):  # other optimizers' state is copied before a save returns
                self.checkpointer.attach(optimizer)

    def __call__(self, trainer: Any) -> None:
        """Chainer calls it when the trigger says so."""
        iteration = trainer.updater.iteration
        metrics = _numbers_in(trainer.observation)
        self.checkpointer.step(iteration, self._state_of(trainer), metrics)

    def finalize(self) -> None:
        """Chainer calls it at the end of run(): returns once all saves have ended."""
        if self._owns:
            self.checkpointer.close()
        else:
            self.checkpointer.wait()

    def _state_of(self, trainer: Any) -> dict[str, Any]:
        return {"trainer": trainer, "rng": self._rng}


def _numbers_in(observation: Mapping[str, Any]) -> dict[str, float]:
    """The reported values that are single numbers, as in Chainer's reports."""
    values = {name: getattr(value, "array", value) for name, value in observation.items()}
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) or _is_real_scalar(value)
    }


def _is_real_scalar(value: Any) -> bool:
    return getattr(value, "ndim", -1) == 0 and value.dtype.kind in "biuf"
