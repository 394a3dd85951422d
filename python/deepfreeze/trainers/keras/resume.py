"""The state that a resumed fit() of Keras needs beside the model: callbacks, place in the epoch."""

from __future__ import annotations

import inspect
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import FrameType
from typing import Any

import keras
import numpy as np

from deepfreeze.errors import MismatchError
from deepfreeze.frameworks.keras.variables import has_metrics_to_come

_KEPT_BY_FIT = frozenset({"model", "_model", "params", "_params", "validation_data"})
_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, bytearray})
_NUMBERS = "biufc"  # kinds of NumPy's dtypes
_JAX_LISTS = (
    "trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables",
)  # fmt: skip

log = logging.getLogger("deepfreeze")


class CallbackState:
    """The counts of a callback: its plain attributes that are not arguments of its constructor."""

    def __init__(self, callback: Any) -> None:
        self._callback = callback
        arguments = inspect.signature(type(callback).__init__).parameters
        self._left_out = _KEPT_BY_FIT | arguments.keys()

    @staticmethod
    def of_all(callbacks: Iterable[Any]) -> dict[str, CallbackState]:
        """The states by class name; the second of a class has a name like "EarlyStopping_2"."""
        found: dict[str, CallbackState] = {}
        counts: dict[str, int] = {}
        for each in callbacks:
            name = type(each).__name__
            counts[name] = counts.get(name, 0) + 1
            found[name if counts[name] == 1 else f"{name}_{counts[name]}"] = CallbackState(each)
        return found

    def state_dict(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in vars(self._callback).items()
            if name not in self._left_out and _is_plain(value)
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self._callback).update(state)


def _is_plain(value: Any) -> bool:
    if type(value) in (list, tuple, set, frozenset, deque):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(type(key) in _ATOMS and _is_plain(each) for key, each in value.items())
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in _NUMBERS
    return type(value) in _ATOMS


class Batches:
    """The batches of a running fit(), which draws them from one iterator per epoch, or for all.

    With steps_per_epoch there is one for all: an epoch begins at the end of the one before it.
    """

    def __init__(self, model: Any) -> None:
        """Looks for fit() among the callers: Keras gives callbacks no way to its data."""
        frame: FrameType | None = sys._getframe()
        while frame and not (frame.f_code.co_name == "fit" and frame.f_locals.get("self") is model):
            frame = frame.f_back
        local = frame.f_locals if frame else {}
        self._iterator: Any = local.get("epoch_iterator")
        self._shuffles = bool(local.get("shuffle")) and _can_be_shuffled(local.get("x"))

    @property
    def drawn(self) -> int | None:
        """How many the iterator has given in all epochs; None if each epoch has its own."""
        if self._iterator is None or self._iterator.steps_per_epoch is None:
            return None
        return int(self._iterator._steps_seen)

    def pass_over(self, count: int) -> None:
        """Draws the batches of earlier epochs."""
        if self._iterator is None or self._iterator.steps_per_epoch is None or count <= 0:
            return
        log.warning("fit(steps_per_epoch=...): drawing %d batches of earlier epochs anew", count)
        iterator = iter(self._iterator._get_iterator())
        deque(islice(iterator, count), maxlen=0)
        self._iterator._current_iterator = iterator
        self._iterator._steps_seen = count

    def warn_if_shuffled(self) -> None:
        """Warns of another order within an epoch: batches would be trained on twice, or never."""
        if self._shuffles:
            log.warning(
                "fit(shuffle=True) goes on in the middle of an epoch: nothing restores the order "
                "of its batches. Use shuffle=False, and an order that follows from a seed"
            )


def _can_be_shuffled(data: Any) -> bool:
    return hasattr(data, "shape") or isinstance(data, (list, tuple, dict, keras.utils.PyDataset))


class PassedOver:
    """The batches of a resumed epoch that were trained on before: drawn, and passed over.

    fit() can't begin in the middle of an epoch, but looks its train_function up for each batch. A
    function that only draws takes its place until `count` batches are drawn. Then `restore` is
    called, because drawing and other callbacks may have changed the state meanwhile.
    """

    def __init__(self, model: Any, count: int, restore: Callable[[], object]) -> None:
        self._model = model
        self._batches_left = count
        self._restore = restore
        self._train: Callable[..., Any] = model.train_function
        self._has_built = False
        self.has_trained = False  # on the rest of an execution

    @property
    def is_over(self) -> bool:
        """Whether all batches are drawn."""
        return self._batches_left == 0

    def begin_batch(self) -> None:
        """Replaces train_function for fit()'s next call: it only draws, then puts the original
        back.

        It is replaced for one call at a time: an interrupted fit() leaves the model as it was.
        """
        if self.is_over:
            return
        by_backend: dict[str, Callable[..., Any]] = {
            "tensorflow": self._draw_tensorflow, "jax": self._draw_jax, "torch": self._drawn,
        }  # fmt: skip
        draw = by_backend[keras.backend.backend()]

        def once(*arguments: Any) -> Any:
            self._model.train_function = self._train
            return draw(*arguments)

        self._model.train_function = once

    def _drawn(self, _: object = None) -> dict[str, Any]:
        """Counts the drawn batches of a call; returns the logs that fit() is given for it."""
        self._batches_left = max(0, self._batches_left - self._model.steps_per_execution)
        if not self.is_over:
            return {}
        self._restore()
        metrics: dict[str, Any] = self._model.get_metrics_result()  # of an epoch that ends here
        return metrics

    def _draw(self, iterator: Iterator[Any]) -> Any:
        first = next(iterator)
        for _ in range(1, min(self._batches_left, self._model.steps_per_execution)):
            next(iterator, None)  # the last ones may be fewer
        return first

    def _draw_tensorflow(self, iterator: Iterator[Any]) -> dict[str, Any]:
        rest = self._model.steps_per_execution - self._batches_left
        self._make_metrics(self._draw(iterator))
        logs = self._drawn()
        return self._train_rest(rest, iterator) or logs if rest > 0 else logs

    def _make_metrics(self, batch: Any) -> None:
        """Makes the metrics now: the first step would, but too late for them to be restored."""
        if self._has_built or not has_metrics_to_come(self._model):
            return
        self._has_built = True
        try:
            self._model._symbolic_build(data_batch=batch)
        except Exception as error:  # a user's train_step may take other arguments than this
            log.warning("metrics of the epoch so far are not restored: %s", error)

    def _train_rest(self, count: int, iterator: Iterator[Any]) -> dict[str, Any]:
        """Trains on the remaining batches of the execution in which the checkpoint was made."""
        from tensorflow.errors import OutOfRangeError

        model, steps = self._model, self._model.steps_per_execution
        model.steps_per_execution = count
        try:
            model.make_train_function(force=True)
            logs: dict[str, Any] = model.train_function(iterator)
        except (StopIteration, OutOfRangeError):  # the checkpoint was the last of its epoch
            return {}
        finally:
            model.steps_per_execution = steps
            model.train_function = self._train
        self.has_trained = True
        return logs

    def _draw_jax(self, state: tuple[Any, ...], iterator: Iterator[Any]) -> tuple[Any, Any]:
        model = self._model
        left, steps = self._batches_left, model.steps_per_execution
        self._draw(iterator)
        if left < steps and next(iterator, None) is not None:
            raise MismatchError(
                f"resume within an epoch: of {steps} batches of one execution {left} were trained "
                "on: give compile() another steps_per_execution"
            )
        if left <= steps:  # fit() has taken the variables' values: give them back
            model._jax_state = dict(zip(_JAX_LISTS, state, strict=True))
            model.jax_state_sync()
        logs = self._drawn()
        if not self.is_over:
            return logs, state
        return logs, model._get_jax_state(**dict.fromkeys(_JAX_LISTS, True))
