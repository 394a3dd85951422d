"""The state of a fit of Lightning, for a Checkpointer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import NoneType
from typing import Any

from lightning.fabric.utilities.data import _set_sampler_epoch
from lightning.pytorch.callbacks import BaseFinetuning, StochasticWeightAveraging
from torch import Tensor

import deepfreeze as df
from deepfreeze.base.names import KeyFilter
from deepfreeze.restoring.chosen import point_in
from deepfreeze.restoring.restorer import load_tree
from deepfreeze.trainers.late_rng import LateRNG
from deepfreeze.trainers.lightning.moments import set_restarting

_WEIGHTS = "state_dict"  # in the checkpoint that a hook is given
_OF_CALLBACKS = "callbacks*"  # matches their names in a state
_TRAINED = "trained"  # beside the states of callbacks


def state_of(trainer: Any, loaders: Loaders, rng: LateRNG, callback: object) -> dict[str, Any]:
    """The live objects, each under a name of its own, without `callback`, which saves them.

    The loaders come before the loops: the loops begin with the batches that loaders have fetched.
    """
    loaders.fit_loop = trainer.fit_loop
    state = {
        "model": trainer.model,
        "optimizers": list(trainer.optimizers),
        "schedulers": _schedulers(trainer),
        "precision": trainer.precision_plugin,
        "callbacks": _Callbacks(trainer, callback),
        "hooks": _Hooks(trainer, callback),
        "loaders": df.per_rank(loaders),
        "loops": _Loops(trainer.fit_loop, loaders),
        "rng": rng,
    }
    if trainer.datamodule is not None:
        state["datamodule"] = trainer.datamodule
    return state


def load_callbacks(trainer: Any, callback: object, ckpt: df.Checkpointer, parent: Any) -> None:
    """Gives callbacks the states that restore() will, and nothing else; `parent` is a new branch's.

    `callback`, which restores, is left out.
    """
    if ckpt.latest() is not None:
        stored = ckpt.load(keys=[_OF_CALLBACKS])
    elif parent is not None:
        run, step = parent
        (info, *_) = point_in(os.fspath(run), step)
        stored = load_tree(info, KeyFilter([_OF_CALLBACKS]))
    else:
        return
    _Callbacks(trainer, callback).load_own(stored["callbacks"])


def resume_averaging(trainer: Any) -> None:
    """Has weight averaging make its scheduler in the middle of an epoch, not only at its beginning.

    It does nothing else now: it already has the average of this epoch.
    """
    rates = [[group["lr"] for group in each.param_groups] for each in trainer.optimizers]
    for each in trainer.callbacks:
        averages = isinstance(each, StochasticWeightAveraging)
        if averages and each.swa_start <= trainer.current_epoch <= each.swa_end:
            each.on_train_epoch_start(trainer, trainer.lightning_module)
    for optimizer, own in zip(trainer.optimizers, rates, strict=True):
        for group, rate in zip(optimizer.param_groups, own, strict=True):
            group["lr"] = rate  # a scheduler that is new sets it


def _schedulers(trainer: Any) -> list[Any]:
    """All schedulers but the one of weight averaging, which makes and stores it by itself."""
    own = [getattr(each, "_swa_scheduler", None) for each in trainer.callbacks]
    found = (config.scheduler for config in trainer.lr_scheduler_configs)
    return [scheduler for scheduler in found if all(scheduler is not each for each in own)]


class Loaders:
    """The positions of loaders that have a state_dict; each rank has its own. One for all fits.

    If a loader has no length, Lightning has fetched one batch more than it has trained on, to know
    which is the last one. That batch is stored too.
    """

    def __init__(self) -> None:
        self.fit_loop: Any = None
        self.restored: list[Any] = []
        self._fetched: list[Any] = []

    def state_dict(self) -> dict[str, Any]:
        inner = self.fit_loop.state_dict()["state_dict"]
        states = inner.get("combined_loader", [])
        fetched = getattr(self.fit_loop._data_fetcher, "batches", []) if states else []
        if not all(map(_is_plain, fetched)):
            warnings.warn(
                "a loader without a length gives batches that are neither tensors nor containers "
                "of them: the batch that is fetched ahead can't be stored, so a resume in the "
                "middle of an epoch does not train on it",
                stacklevel=2,
            )
            fetched = []
        return {"combined_loader": states, "fetched": list(fetched)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.restored, self._fetched = state["combined_loader"], state["fetched"]

    def give_fetched(self) -> None:
        """Gives the loop its fetched batch back, once the loaders have begun."""
        fetched, self._fetched = self._fetched, []
        if fetched:
            self.fit_loop._data_fetcher.batches[:0] = fetched

    def follow_epoch(self) -> None:
        """Has samplers whose order follows from the epoch begin in the one that was restored.

        Lightning tells them the epoch once the loaders have begun. That is too late for a sampler
        that continues in the middle of an epoch.
        """
        restored, self.restored = self.restored, []
        loaders = self.fit_loop._combined_loader.flattened if restored else []
        if any(hasattr(each, "set_epoch") for loader in loaders for each in _samplers(loader)):
            for loader in loaders:
                _set_sampler_epoch(loader, self.fit_loop.epoch_progress.current.processed)
            self.fit_loop._combined_loader._load_state_dicts(restored)
            iter(self.fit_loop._data_fetcher)


def _is_plain(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(type(key) is str for key in value) and all(map(_is_plain, value.values()))
    return isinstance(value, (Tensor, str, int, float, NoneType))


def _samplers(loader: Any) -> Iterator[Any]:
    yield getattr(loader, "sampler", None)
    yield getattr(getattr(loader, "batch_sampler", None), "sampler", None)


class _Loops:
    """Epochs, batches and steps; a rank that is new needs them too."""

    def __init__(self, fit_loop: Any, loaders: Loaders) -> None:
        self._fit_loop = fit_loop
        self._loaders = loaders

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self._fit_loop.state_dict()
        return {**state, "state_dict": _without(state["state_dict"], "combined_loader")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        inner = {**state["state_dict"], "combined_loader": self._loaders.restored}
        self._fit_loop.load_state_dict({**state, "state_dict": inner})
        # Otherwise loaders whose epoch is over would not be given their states.
        set_restarting(self._fit_loop, True)


class _Callbacks:
    """The states of callbacks that have one. As in Lightning, removed callbacks are left out.

    If a finetuning callback decides which parameters are trained, that is stored, too: it decides
    only as an epoch begins, and Lightning's own checkpoints don't hold it.
    """

    def __init__(self, trainer: Any, callback: object) -> None:
        self._callbacks = [each for each in trainer.callbacks if each is not callback]
        finetunes = any(isinstance(each, BaseFinetuning) for each in self._callbacks)
        module = trainer.lightning_module if finetunes else None
        self._parameters = dict(module.named_parameters()) if module else {}

    def state_dict(self) -> dict[str, Any]:
        states = {each.state_key: each.state_dict() for each in self._callbacks}
        if self._parameters:
            trained = [name for name, each in self._parameters.items() if each.requires_grad]
            states[_TRAINED] = trained
        return {key: state for key, state in states.items() if state}

    def load_state_dict(self, states: dict[str, Any]) -> None:
        self.load_own(states)
        for name, parameter in self._parameters.items() if _TRAINED in states else ():
            parameter.requires_grad_(name in states[_TRAINED])

    def load_own(self, states: dict[str, Any]) -> None:
        """Gives each callback its own state."""
        for each in self._callbacks:
            if each.state_key in states:
                each.load_state_dict(states[each.state_key])


class _Hooks:
    """The entries that on_save_checkpoint() of the module and of callbacks adds to a checkpoint.

    If a hook replaces weights, they are included. A weight that a hook only removes is not noted,
    because the module's own weights are stored in any case.
    """

    def __init__(self, trainer: Any, callback: object) -> None:
        self._trainer = trainer
        self._callback = callback

    def state_dict(self) -> dict[str, Any]:
        checkpoint = self._given()
        weights = dict(checkpoint[_WEIGHTS])
        for hook in self._calls("on_save_checkpoint"):
            hook(checkpoint)
        given = checkpoint.get(_WEIGHTS, {})
        if any(weights.get(name) is not value for name, value in given.items()):
            return checkpoint
        return _without(checkpoint, _WEIGHTS)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        checkpoint = {**self._given(), **state}
        for hook in self._calls("on_load_checkpoint"):
            hook(checkpoint)

    def _given(self) -> dict[str, Any]:
        """The checkpoint that a hook may look at."""
        trainer = self._trainer
        return {
            "epoch": trainer.current_epoch,
            "global_step": trainer.global_step,
            _WEIGHTS: trainer.lightning_module.state_dict(),
        }

    def _calls(self, name: str) -> Iterator[Callable[[dict[str, Any]], object]]:
        trainer, module = self._trainer, self._trainer.lightning_module
        for each in trainer.callbacks:
            if each is not self._callback:
                yield partial(getattr(each, name), trainer, module)
        yield getattr(module, name)


def _without(mapping: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in names}
