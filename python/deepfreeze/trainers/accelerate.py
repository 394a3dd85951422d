"""DeepFreeze in programs that use Hugging Face Accelerate: docs/frameworks/accelerate.md."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import nn

import deepfreeze as df
from deepfreeze.restoring.chosen import Step
from deepfreeze.trainers.passed_steps import PassedSteps
from deepfreeze.trainers.tested_versions import warn_of_other_release

_TRIED = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)


class AcceleratorCheckpointer(df.Checkpointer):
    """A Checkpointer that knows the objects that `accelerator` has prepared; replaces save_state().

    It saves models, optimizers, schedulers, loaders that have a state, objects registered by
    register_for_checkpointing(), the scaler, the accelerator's count and the random generators. A
    `state` of the caller's own may be added. Optimizers are attached automatically.

    Make it after prepare(), because objects are named by their order there. `models` are the models
    that prepare() has returned. With several processes they must be given: Accelerate keeps the
    models that DDP wraps, but only DDP knows whose buffers count. CheckpointError (unsupported)
    unless the accelerator runs a single process, or several under DDP.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        path: str | os.PathLike[str],
        *,
        models: Sequence[nn.Module] | None = None,
        **options: Any,
    ) -> None:
        warn_of_other_release("accelerate")
        if accelerator.distributed_type not in _TRIED:
            raise df.CheckpointError(
                f"AcceleratorCheckpointer: {accelerator.distributed_type} is not supported",
                code="unsupported",
            )
        if models is None and accelerator.num_processes > 1:
            raise ValueError(
                "AcceleratorCheckpointer: models=: give the models that prepare() has returned"
            )
        super().__init__(path, **options)
        self._accelerator = accelerator
        self._rng = df.RNG()
        self._models = models
        self._rule = options.get("every")
        self._passed = PassedSteps(self._rule)

    def step(
        self,
        step: int,
        state: object = None,
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> df.SaveHandle | None:
        """As Checkpointer.step(), but None while gradients accumulate: that is no state to resume
        from.

        If such a step was due, the next step that may be saved is saved instead.
        """
        if not self._accelerator.sync_gradients:
            return None
        if self._passed.passed(step):
            return self.save(step, state, metrics, tags)
        return super().step(step, self._whole(state), metrics, tags)

    def save(
        self,
        step: int,
        state: object = None,
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> df.SaveHandle | None:
        """As Checkpointer.save()."""
        return super().save(step, self._whole(state), metrics, tags)

    def prewarm(self, state: object = None) -> None:
        """As Checkpointer.prewarm()."""
        super().prewarm(self._whole(state))

    def restore(
        self,
        state: object = None,
        step: Step = None,
        keys: Sequence[str] | None = None,
        strict: bool = True,
        verify: bool = True,
    ) -> int | None:
        """As Checkpointer.restore()."""
        restored = super().restore(self._whole(state), step, keys, strict, verify)
        self._passed = PassedSteps(self._rule, restored or 0)
        return restored

    def _whole(self, state: object) -> dict[str, Any]:
        accelerator = self._accelerator
        for optimizer in accelerator._optimizers:
            self.attach(optimizer)
        whole = {
            "models": list(self._models or accelerator._models),
            "optimizers": list(accelerator._optimizers),
            "schedulers": list(accelerator._schedulers),
            "loaders": df.per_rank([_Loader(each) for each in accelerator._dataloaders]),
            "registered": list(accelerator._custom_objects),
            "accelerator": _Counts(accelerator),
            "rng": self._rng,
        }
        if accelerator.scaler is not None:
            whole["scaler"] = accelerator.scaler
        if state is not None:
            whole["state"] = state
        return whole


class _Loader:
    """How often a prepared loader was gone through, and its position, if it can tell."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._tells = bool(getattr(loader, "use_stateful_dataloader", False))

    def state_dict(self) -> dict[str, Any]:
        loader = self._loader
        position = loader.state_dict() if self._tells else None
        # It counts an iteration once asked for more than the last batch, and then leaves this list
        goes_on = any(each is loader for each in loader.gradient_state.dataloader_references)
        is_over = goes_on and loader.end_of_dataloader
        return {"iteration": loader.iteration + is_over, "position": position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loader.set_epoch(state["iteration"])
        if self._tells and state["position"] is not None:
            self._loader.load_state_dict(state["position"])


class _Counts:
    """The batches of an accumulation, which decide at which one the optimizer steps."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    def state_dict(self) -> dict[str, Any]:
        return {"step": self._accelerator.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._accelerator.step = state["step"]
