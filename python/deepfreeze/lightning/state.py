"""What decides how a fit of Lightning goes on, as a state for a Checkpointer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from lightning.fabric.utilities.data import _set_sampler_epoch

import deepfreeze as df
from deepfreeze.late_rng import LateRNG

# What a hook may look at, or take something out of; the module's tensors are stored in any case.
_GIVEN = ("epoch", "global_step", "state_dict")
_BATCHES = "epoch_loop.batch_progress"  # in what the loops give


def state_of(trainer: Any, loaders: Loaders, rng: LateRNG, callback: object) -> dict[str, Any]:
    """The live objects, each under a name of its own; `callback`, who saves them, is none of them.

    The loaders come before the loops, which begin with what those were given.
    """
    loaders.fit_loop = trainer.fit_loop
    state = {
        "model": trainer.model,
        "optimizers": list(trainer.optimizers),
        "schedulers": [config.scheduler for config in trainer.lr_scheduler_configs],
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


class Loaders:
    """Where loaders with a state_dict are; each rank's are elsewhere. One for all fits."""

    def __init__(self) -> None:
        self.fit_loop: Any = None
        self.restored: list[Any] = []

    def state_dict(self) -> dict[str, Any]:
        inner = self.fit_loop.state_dict()["state_dict"]
        return {"combined_loader": inner.get("combined_loader", [])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.restored = state["combined_loader"]

    def follow_epoch(self) -> None:
        """Has samplers whose order follows from the epoch begin in the one that was restored.

        Lightning tells them the epoch once the loaders have begun, which is too late for one that
        goes on in its middle.
        """
        restored, self.restored = self.restored, []
        loaders = self.fit_loop._combined_loader.flattened if restored else []
        if any(hasattr(each, "set_epoch") for loader in loaders for each in _samplers(loader)):
            for loader in loaders:
                _set_sampler_epoch(loader, self.fit_loop.epoch_progress.current.processed)
            self.fit_loop._combined_loader._load_state_dicts(restored)
            iter(self.fit_loop._data_fetcher)


def _samplers(loader: Any) -> Iterator[Any]:
    yield getattr(loader, "sampler", None)
    yield getattr(getattr(loader, "batch_sampler", None), "sampler", None)


class _Loops:
    """Epochs, batches and steps; what a rank that is new needs too."""

    def __init__(self, fit_loop: Any, loaders: Loaders) -> None:
        self._fit_loop = fit_loop
        self._loaders = loaders

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self._fit_loop.state_dict()
        return {**state, "state_dict": _without(state["state_dict"], "combined_loader")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        inner = {**state["state_dict"], "combined_loader": self._loaders.restored}
        state = {**state, "state_dict": inner}
        if self._loaders.restored:
            # Those that are at an epoch's end give no batch, and with that end it: Lightning, which
            # does so too after a last batch, would count it twice.
            state[_BATCHES] = {**state[_BATCHES], "is_last_batch": False}
        self._fit_loop.load_state_dict(state)


class _Callbacks:
    """The states of callbacks that have one. As in Lightning, those that are gone are left out."""

    def __init__(self, trainer: Any, callback: object) -> None:
        self._callbacks = [each for each in trainer.callbacks if each is not callback]

    def state_dict(self) -> dict[str, Any]:
        states = {each.state_key: each.state_dict() for each in self._callbacks}
        return {key: state for key, state in states.items() if state}

    def load_state_dict(self, states: dict[str, Any]) -> None:
        for each in self._callbacks:
            if each.state_key in states:
                each.load_state_dict(states[each.state_key])


class _Hooks:
    """What on_save_checkpoint() of the module and of callbacks adds to a checkpoint."""

    def __init__(self, trainer: Any, callback: object) -> None:
        self._trainer = trainer
        self._callback = callback

    def state_dict(self) -> dict[str, Any]:
        checkpoint = self._given()
        for hook in self._calls("on_save_checkpoint"):
            hook(checkpoint)
        return _without(checkpoint, *_GIVEN)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        checkpoint = {**self._given(), **state}
        for hook in self._calls("on_load_checkpoint"):
            hook(checkpoint)

    def _given(self) -> dict[str, Any]:
        trainer = self._trainer
        weights = trainer.lightning_module.state_dict()
        return dict(zip(_GIVEN, (trainer.current_epoch, trainer.global_step, weights), strict=True))

    def _calls(self, name: str) -> Iterator[Callable[[dict[str, Any]], object]]:
        trainer, module = self._trainer, self._trainer.lightning_module
        for each in trainer.callbacks:
            if each is not self._callback:
                yield partial(getattr(each, name), trainer, module)
        yield getattr(module, name)


def _without(mapping: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in names}
