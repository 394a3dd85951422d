"""Hugging Face's Trainer, with its own shuffled loader and an optimizer of the program's."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

from deepfreeze.huggingface import DeepFreezeTrainerMixin

from .trainer_parts import BATCH, Parts, Rows, StoppedError, kept_generators, loss_of
from .training import SEED, STEPS, Options

logging.set_verbosity_error()


class Model(nn.Module):
    """The model that the Trainer calls: it takes a batch's columns and gives the loss."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"loss": loss_of(self.net, {"x": x})}


class Tells(TrainerCallback):
    """When a save has begun."""

    def __init__(self, saved: Callable[[int], None]) -> None:
        self._saved = saved

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._saved(state.global_step)


class OwnTrainer(DeepFreezeTrainerMixin, Trainer):
    """May end once everything is restored, and leave a part of the state out."""

    stops = False
    forget = ""

    def _load_rng_state(self, checkpoint: Any) -> None:
        super()._load_rng_state(checkpoint)
        if self.stops:
            raise StoppedError

    def _restorable(self) -> dict[str, Any]:
        return {name: each for name, each in super()._restorable().items() if name != self.forget}


class Own:
    """A Trainer for each train()."""

    forgettable: ClassVar[tuple[str, ...]] = ("optimizer", "rng")
    misfit: ClassVar[str] = "model.net.frozen.weight"
    large_arrays: ClassVar[int] = 4  # two weights, and two moments of one

    def __init__(self, options: Options) -> None:
        self.parts = Parts(options)
        self.model = Model(self.parts.net)
        self.options = options
        self.resumes = False

    def restore(self, step: int | None) -> int:
        assert self.options.run is not None
        if not any(self.options.run.glob("step-*/manifest.json")):
            return 0
        trainer = self._trainer(STEPS + 1)
        trainer.stops = True
        with contextlib.suppress(StoppedError):
            trainer.train(True if step is None else step)
        self.resumes = True
        return int(trainer.state.global_step)

    def train(self, until: int, saved: Callable[[int], None]) -> None:
        trainer = self._trainer(until)
        trainer.add_callback(Tells(saved))
        trainer.train(self.resumes)

    def _trainer(self, until: int) -> Any:
        with kept_generators():  # it seeds them
            return self._made(until)

    def _made(self, until: int) -> Any:
        run, saves = self.options.run, self.options.run is not None
        arguments = TrainingArguments(
            output_dir=tempfile.gettempdir() if run is None else str(run.parent),
            max_steps=until, per_device_train_batch_size=BATCH, use_cpu=True, report_to=[],
            save_strategy="steps" if saves else "no", save_steps=1, max_grad_norm=0,
            logging_strategy="no", disable_tqdm=True, data_seed=SEED, seed=self.options.seed,
        )  # fmt: skip
        kind = OwnTrainer if saves else Trainer
        more = {"run": run, "run_options": {"profile": "latency"}} if saves else {}
        trainer = kind(
            model=self.model, args=arguments, train_dataset=Rows(),
            optimizers=(self.parts.optim, self.parts.sched), **more,
        )  # fmt: skip
        trainer.forget = self.options.forget
        return trainer

    def digest(self) -> str:
        return self.parts.digest()

    def close(self) -> None:
        """Each train() has waited."""
