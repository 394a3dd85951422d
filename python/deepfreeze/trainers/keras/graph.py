"""Keras on TensorFlow: variables are taken within the training graph, right after their updates.

Only a reference is taken: the next step's update finds the buffer in use, and makes another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf  # type: ignore[import-untyped, unused-ignore]

from deepfreeze.frameworks.keras.untracked import untracked_of
from deepfreeze.frameworks.keras.variables import TakenModel, groups_of, layers_of

_NEVER = -1
_Update = Callable[..., None]


class GraphCapture:
    """Takes all of a model's variables after a chosen step, which may be one of several in a call.

    A variable is taken as soon as the optimizer has updated it, if nothing else in the step can
    write it; the others at the end of the step. For the thread that calls fit().
    """

    def __init__(self, model: Any) -> None:
        """Has the model's train_function traced anew, so that it takes the variables.

        ValueError under a distribution strategy, for a step that XLA compiles, and for variables
        of TensorFlow's own in a layer.
        """
        if model._distribute_strategy is not None:
            raise ValueError(
                "DeepFreezeCallback: mode after_update supports no distribution strategy"
            )
        if model.jit_compile:  # under XLA no variable can change its size
            raise ValueError(
                "DeepFreezeCallback: mode after_update needs compile(jit_compile=False)"
            )
        untracked = untracked_of(layers_of(model), _variables_of(model))
        if untracked:
            raise ValueError(
                "DeepFreezeCallback: mode after_update takes Keras's variables alone, not "
                f"{', '.join(untracked)} of the model's layers; take mode window"
            )
        self._model = model
        self._shadows: dict[int, _Shadow] = {}
        self._done = tf.Variable(0, dtype=tf.int64, trainable=False)  # steps
        self._wanted = tf.Variable(_NEVER, dtype=tf.int64, trainable=False)
        self._steps_until = 0
        self._is_now: Any = None  # while a step is traced
        self._taken: set[int] = set()  # in the step that is traced
        self._give: Callable[[], list[Any]]  # since one was
        self._train_step: Callable[..., Any] = model.train_step
        self._update_step: _Update = model.optimizer.update_step
        # This bypasses Keras's __setattr__, which looks for variables in the value.
        vars(model)["train_step"] = self._step
        if _updates_last(model):
            vars(model.optimizer)["update_step"] = self._update
        model.make_train_function(force=True)

    @staticmethod
    def remove(model: Any) -> None:
        """Gives the model its own step back, if another stands in for it."""
        own = vars(model).get("train_step")
        if isinstance(getattr(own, "__self__", None), GraphCapture):
            del vars(model)["train_step"]
            vars(model.optimizer).pop("update_step", None)
            model.make_train_function(force=True)

    def want(self, offset: int | None) -> None:
        """Takes the `offset`-th step from now; None takes no step."""
        self._steps_until = offset or 0
        self._wanted.assign(_NEVER if offset is None else self._done + offset)

    def take(self) -> tuple[int, TakenModel] | None:
        """The taken step's number, counted from want(), and the model at that step; or None."""
        offset, self._steps_until = self._steps_until, 0
        if not offset or self._done < self._wanted:  # fewer batches were left
            return None
        return offset, TakenModel(self._model, dict(zip(self._shadows, self._give(), strict=True)))

    def _step(self, data: Any) -> Any:
        """Stands in for the model's train_step."""
        self._is_now = tf.equal(self._done.assign_add(1), self._wanted)
        self._taken = set()
        logs = self._train_step(data)
        self._keep(_variables_of(self._model))
        self._is_now = None
        self._give = tf.function(lambda: [each.give() for each in self._shadows.values()])
        return logs

    def _update(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Stands in for the optimizer's update_step."""
        self._update_step(gradient, variable, learning_rate)
        if self._is_now is not None:
            self._keep(_updated_with(variable, self._model.optimizer))

    def _keep(self, variables: Iterable[Any]) -> None:
        shadows = [self._shadow_of(each) for each in variables if id(each) not in self._taken]
        self._taken.update(id(each.variable) for each in shadows)

        def keep() -> Any:
            for each in shadows:
                each.keep()
            return tf.constant(True)

        tf.cond(self._is_now, keep, lambda: tf.constant(False))

    def _shadow_of(self, variable: Any) -> _Shadow:
        found = self._shadows.get(id(variable))
        if found is None:
            with tf.init_scope():  # metrics and slots are made while the first step is traced
                found = self._shadows[id(variable)] = _Shadow(variable)
        return found


class _Shadow:
    """A second variable, with the first one's buffer or none."""

    def __init__(self, variable: Any) -> None:
        self.variable = variable
        self._none = tf.zeros([0], variable._value.dtype)
        self._kept = tf.Variable(
            self._none, shape=tf.TensorShape(None), validate_shape=False, trainable=False
        )

    def keep(self) -> None:
        self._kept.assign(self.variable._value.read_value())

    def give(self) -> Any:
        value = self._kept.read_value()
        self._kept.assign(self._none)
        return value


def _variables_of(model: Any) -> Iterator[Any]:
    for variables in groups_of(model).values():
        yield from variables


def _updates_last(model: Any) -> bool:
    """Whether nothing writes trained variables and their slots after the update_step."""
    optimizer = model.optimizer
    own_step = type(model).train_step is not keras.Model.train_step
    return not (own_step or optimizer.use_ema or optimizer.gradient_accumulation_steps)


def _updated_with(variable: Any, optimizer: Any) -> Iterator[Any]:
    """A variable of TensorFlow as Keras's, and its slots: they have the same index in their lists.

    Leaves a variable out if a constraint is still to be applied to it.
    """
    index = optimizer._get_variable_index(variable)
    trained = optimizer._trainable_variables
    for name, each in vars(optimizer).items():
        is_parallel = name != "_variables" and isinstance(each, list) and len(each) == len(trained)
        found = each[index] if is_parallel else None
        if isinstance(found, keras.Variable) and found.constraint is None:
            yield found
