"""DeepFreeze in Hugging Face's Trainer: docs/frameworks/huggingface.md.

It is a mixin and no callback, because a callback comes too late to resume: by then the Trainer has
decided from which epoch and batch it continues.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from transformers.training_args import ParallelMode

import deepfreeze as df
from deepfreeze.base.arguments import absolute, absolute_options
from deepfreeze.interval.policy import Keep
from deepfreeze.restoring.chosen import Step, point_in, split_address
from deepfreeze.trainers.late_rng import LateRNG
from deepfreeze.trainers.tested_versions import warn_of_other_release

log = logging.getLogger("deepfreeze")

_BEST = "best_model"  # a metric of each step that was the best when it was saved


class DeepFreezeTrainerMixin:
    """`class MyTrainer(DeepFreezeTrainerMixin, Trainer)`: its checkpoints are those of a run.

    `run` is the run's directory, by default `deepfreeze` in `output_dir`. `run_options` are those
    of df.Checkpointer but for `every`: `save_strategy` and `save_steps` decide when to save. Unless
    `keep` is given, `save_total_limit` checkpoints stay, and also the best one if
    `metric_for_best_model` is set. The metrics of a step are the values that were logged at it.

    `train(resume_from_checkpoint=True)` resumes from the newest checkpoint that verifies, or begins
    if there is none; so does "latest". A number is a step of the run, "best" the step that was the
    best by `metric_for_best_model`, and "best:METRIC:min|max" the best by that metric. RUN@STEP, as
    in `state.best_model_checkpoint`, names a step too. The path of one of the Trainer's own
    checkpoints is read as ever.
    """

    # Attributes of the Trainer that this class uses
    args: Any
    accelerator: Any
    callback_handler: Any
    control: Any
    lr_scheduler: Any
    model: Any
    model_wrapped: Any
    optimizer: Any
    state: Any
    store_flos: Any

    def __init__(
        self,
        *arguments: Any,
        run: str | os.PathLike[str] | None = None,
        run_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        warn_of_other_release("transformers")
        super().__init__(*arguments, **options)
        _refuse(self)
        beside = os.path.join(self.args.output_dir, "deepfreeze")
        self.run = absolute(beside if run is None else run, "run")
        self.checkpointer: df.Checkpointer | None = None  # while train() runs
        self._run_options = {
            "keep": _keep_of(self.args),
            **absolute_options(run_options or {}),
        }
        self._late_rng = LateRNG()
        self._resuming: int | None = None  # the step of the run that train() resumes from
        self._is_restored = False  # whether the whole state of that step is in place
        self._best: str | None = None  # the best checkpoint up to that step

    def train(self, resume_from_checkpoint: Any = None, *more: Any, **options: Any) -> Any:
        """As Trainer.train(). CorruptError if none of the checkpoints verifies."""
        trainer: Any = super()
        with df.Checkpointer(self.run, **self._run_options) as self.checkpointer:
            steps = _steps_to_try(self, self.checkpointer, resume_from_checkpoint)
            for step in steps:
                try:
                    with self._as_directory(step) as directory:
                        return trainer.train(directory, *more, **options)
                except (df.CorruptError, df.IncompleteError) as error:
                    if self._is_restored or step == steps[-1]:
                        raise
                    log.warning("step %d can't be resumed, trying an older one: %s", step, error)
            begins = None if resume_from_checkpoint in (True, "latest") else resume_from_checkpoint
            return trainer.train(begins, *more, **options)

    @contextlib.contextmanager
    def _as_directory(self, step: int) -> Iterator[str]:
        """The part of a checkpoint that the Trainer itself reads, to know how far training is."""
        self._resuming, self._is_restored = step, False
        try:
            stored = self._opened().load(step, keys=["trainer*"])["trainer"]
            # No directory, so the Trainer would say that it is gone
            self._best, stored["best_model_checkpoint"] = stored["best_model_checkpoint"], None
            with tempfile.TemporaryDirectory(prefix="deepfreeze-") as directory:
                Path(directory, TRAINER_STATE_NAME).write_text(json.dumps(stored))
                yield directory
        finally:
            self._resuming = None

    # The Trainer calls the following methods

    def _init_training_state(self, *arguments: Any, **options: Any) -> Any:
        begins = super()._init_training_state(*arguments, **options)  # type: ignore[misc]
        if self._resuming is not None:
            self.state.best_model_checkpoint = self._best
        return begins

    def _prepare_for_training(self, *arguments: Any, **options: Any) -> Any:
        prepared = super()._prepare_for_training(*arguments, **options)  # type: ignore[misc]
        self._opened().attach(self.optimizer)
        return prepared

    def _run_epoch(self, *arguments: Any, **options: Any) -> None:
        """Skips the epoch if all steps are done: the Trainer would do one more."""
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(*arguments, **options)  # type: ignore[misc]
        else:
            self._late_rng.put_back()
            self.control.should_training_stop = True

    def _load_from_checkpoint(self, *arguments: Any, **options: Any) -> None:
        if self._resuming is None:
            super()._load_from_checkpoint(*arguments, **options)  # type: ignore[misc]

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        """Restores everything: by now all of it exists, and nothing has been trained."""
        if self._resuming is None:
            super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        else:
            self._opened().restore(self._restorable(), self._resuming)
            self._is_restored = True

    def _load_scaler(self, checkpoint: Any) -> None:
        if self._resuming is None:
            super()._load_scaler(checkpoint)  # type: ignore[misc]

    def _load_rng_state(self, checkpoint: Any) -> None:
        """Restores the generators, once the batches that were trained on are skipped."""
        if self._resuming is None:
            super()._load_rng_state(checkpoint)  # type: ignore[misc]
        else:
            self._late_rng.put_back()

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if trial is not None:
            raise df.CheckpointError(
                "DeepFreezeTrainerMixin: a hyperparameter search needs a run for each trial",
                code="unsupported",
            )
        self.store_flos()
        _export_callbacks(self)
        best_before, metrics = self.state.best_model_checkpoint, _metrics_of(self.state)
        if self.state.best_global_step == self.state.global_step:
            self.state.best_model_checkpoint = f"{self.run}@{self.state.global_step}"
            metrics[_BEST] = self.state.global_step
        if self._opened().save(self.state.global_step, self._restorable(), metrics) is None:
            self.state.best_model_checkpoint = best_before  # it was skipped

    def _load_best_model(self) -> None:
        """Loads the newest model that was the best when it was saved; warns if that save failed."""
        best = self.state.best_model_checkpoint
        if Path(best).is_dir():  # a checkpoint of the Trainer's own, from which training began
            super()._load_best_model()  # type: ignore[misc]
            return
        self._opened().wait()  # its save may be in flight, and loading writes in place
        try:
            values = self._opened().load(int(best.rpartition("@")[2]), keys=["model.*"])["model"]
        except df.CheckpointError as error:
            if error.code != "not_found":
                raise
            log.warning("the best model is gone, the last one stays: %s", error)
            return
        self.model.load_state_dict(values)

    def _restorable(self) -> dict[str, Any]:
        """The state that a resume needs; the place in the data follows from the step."""
        is_ddp = self.args.parallel_mode == ParallelMode.DISTRIBUTED
        state = {
            "model": self.model_wrapped if is_ddp else self.model,
            "optimizer": self.optimizer,
            "scheduler": self.lr_scheduler,
            "trainer": json.loads(json.dumps(dataclasses.asdict(self.state))),
            "rng": self._late_rng,
        }
        if getattr(self.accelerator, "scaler", None) is not None:
            state["scaler"] = self.accelerator.scaler
        return state

    def _opened(self) -> df.Checkpointer:
        assert self.checkpointer is not None
        return self.checkpointer


def _refuse(trainer: Any) -> None:
    modes = (ParallelMode.NOT_PARALLEL, ParallelMode.NOT_DISTRIBUTED, ParallelMode.DISTRIBUTED)
    mode = trainer.args.parallel_mode
    if mode not in modes or trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise df.CheckpointError(
            "DeepFreezeTrainerMixin: it saves a model that DDP or one process trains, not "
            f"one that DeepSpeed, FSDP or {mode} has divided",
            code="unsupported",
        )


def _keep_of(args: Any) -> Keep | None:
    if args.save_total_limit is None or args.save_total_limit <= 0:
        return None
    best = None if args.metric_for_best_model is None else (_BEST, "max")
    return df.keep(last=args.save_total_limit, best=best)


def _steps_to_try(trainer: Any, ckpt: df.Checkpointer, asked: Any) -> list[int]:
    """The steps to try, newest first; none if training begins, or resumes from other files."""
    if isinstance(asked, str) and not os.path.isdir(asked):
        asked = _step_named(trainer, asked)
    if asked is True or asked == "latest":
        return ckpt.steps()[::-1]
    if isinstance(asked, str) and asked.startswith("best") and not os.path.isdir(asked):
        return [_best_step(trainer, ckpt, asked)]
    return [asked] if type(asked) is int else []


def _step_named(trainer: Any, text: str) -> Step:
    """The checkpoint that is named: the text itself, or in RUN@STEP the part after the "@"."""
    address = split_address(text)
    if address is None:
        return text
    if not address[0].samefile(trainer.run):
        raise df.CheckpointError(
            f"resume_from_checkpoint={text!r}: this Trainer continues the run {trainer.run}; for "
            "a new run that begins there give run_options={'parent': (RUN, STEP)}",
            code="invalid_argument",
        )
    return address[1]


def _best_step(trainer: Any, ckpt: df.Checkpointer, asked: str) -> int:
    """For a plain "best" the Trainer's own notes decide: it knows which direction is better."""
    if asked == "best" and trainer.args.metric_for_best_model is not None:
        asked = f"best:{_BEST}:max"
    found = point_in(os.fspath(ckpt.path), asked)
    if not found:
        raise df.CheckpointError(f"{ckpt.path}: no checkpoint to resume from", code="not_found")
    return found[0].step


def _export_callbacks(trainer: Any) -> None:
    """Puts the state of callbacks and control into the trainer's, as the Trainer's saves do."""
    states = trainer.state.stateful_callbacks
    for each in (*trainer.callback_handler.callbacks, trainer.control):
        if isinstance(each, ExportableState):
            name = type(each).__name__
            if isinstance(states[name], list):
                states[name].append(each.state())
            else:
                states[name] = each.state()


def _metrics_of(state: Any) -> dict[str, float]:
    """The numbers that were logged at this step."""
    logged: dict[str, float] = {}
    for entry in reversed(state.log_history):
        if entry.get("step") != state.global_step:
            break
        logged |= {name: value for name, value in entry.items() if type(value) in (int, float)}
    return logged
