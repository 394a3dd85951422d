"""TensorFlow: a tf.function of its own over a tf.Module, a generator and a tf.data iterator."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import hashlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

import deepfreeze as df

from .training import SEED, Options

ROWS = 400


class Net(tf.Module):
    """Its first layer is frozen, the last two are one variable; statistics change in forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        draw = tf.random.normal
        self.frozen = tf.Variable(draw([64, width * 2]), trainable=False)
        self.embedded = tf.Variable(draw([ROWS, 64]))  # a gather switches it to copy-on-read
        self.mean = tf.Variable(tf.zeros([width * 2]), trainable=False)
        self.inner = tf.Variable(draw([width * 2, width * 2]) / 17)
        self.again = self.inner

    def __call__(self, rows: Any, generator: Any) -> Any:
        x = tf.gather(self.embedded, rows) @ self.frozen
        self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(x, 0))
        x = tf.nn.relu((x - self.mean) @ self.inner)
        kept = tf.cast(generator.uniform(tf.shape(x)) > 0.2, x.dtype)
        return (x * kept) @ self.again


class Momentum(tf.Module):
    """Gradient descent with one slot for each variable, and a step count."""

    def __init__(self, variables: list[Any]) -> None:
        super().__init__()
        self.step = tf.Variable(0, dtype=tf.int64)
        self.slots = [tf.Variable(tf.zeros_like(each)) for each in variables]

    def apply(self, variables: list[Any], gradients: list[Any]) -> None:
        self.step.assign_add(1)
        rate = 1e-3 / tf.cast(self.step, tf.float32)
        for variable, slot, gradient in zip(variables, self.slots, gradients, strict=True):
            slot.assign(0.9 * slot + tf.convert_to_tensor(gradient))
            variable.assign_sub(rate * slot)


def rows_in_order() -> Any:
    """An iterator whose position counts: an order that is drawn anew in each pass."""
    rows = tf.data.Dataset.range(ROWS).shuffle(64, seed=SEED, reshuffle_each_iteration=True)
    return iter(rows.repeat().batch(16, drop_remainder=True))


class Own:
    """A loop of its own."""

    forgettable: ClassVar[tuple[str, ...]] = ("optim", "rng", "data")
    misfit: ClassVar[str] = "net.frozen"
    large_arrays: ClassVar[int] = 5  # two weights, an embedding, and two slots

    def __init__(self, options: Options) -> None:
        tf.random.set_seed(options.seed)
        tf.config.experimental.enable_op_determinism()
        self.net = Net(192 if options.wide else 144)
        self.trained = [self.net.embedded, self.net.inner]
        self.optim = Momentum(self.trained)
        self.generator = tf.random.Generator.from_seed(options.seed)
        self.data = rows_in_order()
        whole: dict[str, Any] = {
            "net": self.net, "optim": self.optim, "rng": self.generator, "data": self.data,
        }  # fmt: skip
        self.state = {name: each for name, each in whole.items() if name != options.forget}
        self.done = 0
        self.update = tf.function(self._update)
        self.ckpt = None if options.run is None else df.Checkpointer(options.run, profile="latency")

    def restore(self, step: int | None) -> int:
        assert self.ckpt is not None
        self.done = self.ckpt.restore(self.state, step) or 0
        return self.done

    def train(self, until: int, saved: Callable[[int], None]) -> None:
        for step in range(self.done + 1, until + 1):
            self.update(next(self.data))
            if self.ckpt is not None:
                self.ckpt.save(step, self.state)
                saved(step)
        self.done = until

    def _update(self, rows: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.net(rows, self.generator)))
        self.optim.apply(self.trained, tape.gradient(loss, self.trained))

    def digest(self) -> str:
        digest = hashlib.sha256()
        for variable in (*self.net.variables, *self.optim.variables, self.generator.state):
            digest.update(np.ascontiguousarray(variable.numpy()).tobytes())
        return digest.hexdigest()

    def close(self) -> None:
        if self.ckpt is not None:
            self.ckpt.close()
