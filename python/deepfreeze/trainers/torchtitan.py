"""torchtitan's checkpoint manager, over a run: docs/frameworks/torchtitan.md."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.checkpointer.base import (
    DATALOADER,
    LR_SCHEDULER,
    MODEL,
    OPTIMIZER,
    BaseCheckpointManager,
)

import deepfreeze as df
from deepfreeze.base.arguments import absolute
from deepfreeze.restoring.chosen import Step, split_address
from deepfreeze.trainers.tested_versions import warn_of_other_release

_RNG = "rng"
# torchtitan's options for Hugging Face's files: `deepfreeze import` and `export` do that.
_NOT_OURS = ("initial_load_in_hf", "initial_load_in_hf_quantized", "last_save_in_hf")


class DeepFreezeCheckpointManager(BaseCheckpointManager):  # type: ignore[misc, unused-ignore]
    """In a trainer's config: `checkpoint=DeepFreezeCheckpointManager.Config(enable=True, ...)`.

    The run is `folder` in the trainer's dump folder. Steps are saved as `interval`,
    `enable_first_step_checkpoint` and `load_only` say, `keep_latest_k` stay, and each is whole:
    model, optimizers, schedulers, the loader's position, train state and, other than torchtitan's
    own, the random generators. The state that optimizers own is copied beside the next step.

    load() takes the newest that verifies, of this run or else of `initial_load_path`, which is
    another run, or one of its checkpoints, as RUN@STEP or RUN@best:METRIC. False if there is none;
    CheckpointError and MismatchError as restore(). For the thread that trains; all ranks make the
    same calls.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseCheckpointManager.Config):  # type: ignore[misc, unused-ignore]
        """torchtitan's options; those for Hugging Face's files are refused when it is built."""

    def __init__(
        self,
        config: Config,
        *,
        dataloader: Any,
        model_parts: list[Any],
        optimizers: Any,
        lr_schedulers: Any,
        states: dict[str, Any],
        sd_adapter: Any,
        base_folder: str = "",
    ) -> None:
        self.enable = config.enable
        self.save_future: Any = None
        if not self.enable:
            return
        warn_of_other_release("torchtitan")
        refused = [name for name in _NOT_OURS if getattr(config, name)]
        if refused:
            self.enable = False  # for close(), which its end calls
            raise ValueError(f"DeepFreezeCheckpointManager: {refused[0]}: use deepfreeze import")
        self._config = config
        given = config.initial_load_path
        self._initial_path = None if given is None else absolute(given, "initial_load_path")
        own = list(optimizers)
        parts = {str(index): part for index, part in enumerate(model_parts)}
        self._state: dict[str, Any] = {
            **states,
            MODEL: model_parts[0] if len(model_parts) == 1 else parts,
            OPTIMIZER: own[0] if len(own) == 1 else own,
            LR_SCHEDULER: lr_schedulers,
            _RNG: df.RNG(),
        }
        if dataloader is not None:
            self._state[DATALOADER] = dataloader
            if getattr(dataloader, "generator", self) is None:
                # Otherwise it would draw a seed from the global generator at its start, after the
                # restore.
                dataloader.generator = torch.Generator().manual_seed(torch.initial_seed())
        keep = df.keep(last=config.keep_latest_k) if config.keep_latest_k else None
        self._ckpt = df.Checkpointer(os.path.join(base_folder, config.folder), keep=keep)
        for optimizer in own:
            self._ckpt.attach(optimizer)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._ckpt!r}>" if self.enable else "<not enabled>"

    def __del__(self) -> None:
        self.close()

    def _load(self, step: int = -1) -> bool:
        if self._ckpt.latest() is not None:
            return self._restored(self._ckpt, None if step == -1 else step, self._names())
        if step != -1:
            raise FileNotFoundError(f"{self._ckpt.path} has no step {step}: it has none at all")
        path = self._initial_path
        if path is None:
            return False
        names = [MODEL] if self._config.initial_load_model_only else self._names()
        run, chosen = split_address(os.fspath(path)) or (path, None)
        try:
            other = df.Checkpointer(run, read_only=True)
        except df.CheckpointError as error:
            if error.code != "not_found":
                raise
        else:
            with other:
                if self._restored(other, chosen, names):
                    return True
        raise FileNotFoundError(f"initial_load_path: {path} is no run with a checkpoint")

    def _names(self) -> list[str] | None:
        """The names of the parts of the state that are loaded; None for all."""
        left_out = self._config.exclude_from_loading
        return [name for name in self._state if name not in left_out] if left_out else None

    def _restored(self, ckpt: df.Checkpointer, step: Step, names: list[str] | None) -> bool:
        return ckpt.restore(self._state, step, keys=names) is not None

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        config = self._config
        first = curr_step == 1 and config.enable_first_step_checkpoint
        is_due = curr_step % config.interval == 0 or last_step or first
        if not is_due or config.load_only:
            return False
        self.save_future = self._ckpt.save(curr_step, self._state)
        return self.save_future is not None

    def _maybe_wait_for_staging(self) -> None:
        """Fences before the update.

        An optimizer's hook does too, but the caller may write anything.
        """
        self._ckpt.fence()

    def _wait_for_saving(self) -> None:
        self._ckpt.wait()
        self.save_future = None

    def _close(self) -> None:
        if hasattr(self, "_ckpt"):
            self._ckpt.close()
