"""Keras 3 on the backend that was chosen before it was imported: fit() with the callback."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, ClassVar

import keras
import numpy as np

import deepfreeze as df
from deepfreeze.keras import DeepFreezeCallback

from .training import SEED, STEPS, Options

BATCH = 16
BATCHES = 4  # of an epoch: half of a training ends within one
BACKEND = keras.backend.backend()


class Tied(keras.layers.Layer):
    """Multiplies by the weight of another layer, so that the model has it in two places."""

    def __init__(self, other: Any) -> None:
        super().__init__()
        self.kernel = other.kernel

    def call(self, x: Any) -> Any:
        return keras.ops.matmul(x, self.kernel)


class UnseededNoise(keras.layers.Layer):
    """Draws from Keras's global seed generator, which jax can't in a traced step."""

    def call(self, x: Any, training: bool = False) -> Any:
        if not training or BACKEND == "jax":
            return x
        return x + 0.1 * keras.random.normal(keras.ops.shape(x))


def make_model(width: int) -> Any:
    """Its first layer is frozen; two kinds of dropout; averages of the weights."""
    inner = keras.layers.Dense(width, activation="relu", name="inner")
    inner.build((None, width))
    model = keras.Sequential([
        keras.layers.Input((128,)),
        keras.layers.Dense(width, name="frozen", trainable=False),
        keras.layers.BatchNormalization(),
        UnseededNoise(),
        inner,
        keras.layers.Dropout(0.2),
        keras.layers.Dropout(0.2, seed=3),
        Tied(inner),
        keras.layers.Dense(1),
    ])  # fmt: skip
    optimizer = keras.optimizers.AdamW(1e-2, use_ema=True, ema_momentum=0.9)
    model.compile(optimizer, loss="mse", metrics=["mae"])
    return model


def seed_states(model: Any) -> list[Any]:
    return [each for each in model.variables if each.path.endswith("seed_generator_state")]


class Callback(DeepFreezeCallback):
    """Tells when a step was saved, stops training after one, and may forget a part."""

    def __init__(self, ckpt: df.Checkpointer, forget: str) -> None:
        super().__init__(ckpt, every=None)
        self.forget = forget
        self.until = 0
        self.saved: Callable[[int], None] = lambda _: None

    @property
    def state(self) -> dict[str, Any]:
        state = super().state
        state.pop(self.forget, None)
        if self.forget in ("optimizer", "seeds"):
            state["model"] = self._parts(state["model"])
        return state

    def _parts(self, model: Any) -> dict[str, list[Any]]:
        if BACKEND == "jax":
            model.jax_state_sync()
        forgotten = {id(each) for each in seed_states(model)} if self.forget == "seeds" else set()
        parts = {"variables": [each for each in model.variables if id(each) not in forgotten]}
        if self.forget != "optimizer":
            parts["optimizer"] = model.optimizer.variables
        return {**parts, "metrics": model.metrics_variables}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        before = self._progress["step"]
        super().on_train_batch_end(batch, logs)
        step = self._progress["step"]
        if step > before:
            self.saved(step)
            self.model.stop_training = step >= self.until


class Own:
    """fit() of a small model."""

    # Nothing draws from a global generator in a traced step of jax.
    forgettable: ClassVar[tuple[str, ...]] = (
        ("optimizer", "seeds") if BACKEND == "jax" else ("optimizer", "seeds", "rng")
    )
    misfit: ClassVar[str] = "frozen/kernel"
    large_arrays: ClassVar[int] = 5  # two weights, and two moments and the average of one

    def __init__(self, options: Options) -> None:
        keras.utils.set_random_seed(options.seed)
        if BACKEND == "tensorflow":
            import tensorflow as tf

            tf.config.experimental.enable_op_determinism()
        self.model = make_model(192 if options.wide else 144)
        generator = np.random.default_rng(SEED)
        self.x = generator.standard_normal((BATCH * BATCHES, 128), dtype=np.float32)
        self.y = self.x[:, :1] ** 2
        self.model.train_on_batch(self.x[:BATCH], self.y[:BATCH])  # makes metrics and slots
        self.ckpt = None if options.run is None else df.Checkpointer(options.run, profile="latency")
        self.callback = None if self.ckpt is None else Callback(self.ckpt, options.forget)

    def restore(self, step: int | None) -> int:
        assert self.ckpt is not None
        assert self.callback is not None
        self.callback.set_model(self.model)
        return self.ckpt.restore(self.callback.state, step) or 0

    def train(self, until: int, saved: Callable[[int], None]) -> None:
        callbacks = []
        if self.callback is not None:
            self.callback.until, self.callback.saved = until, saved
            callbacks = [self.callback]
        self.model.fit(
            self.x, self.y, BATCH, STEPS // BATCHES, shuffle=False, verbose=0, callbacks=callbacks
        )

    def digest(self) -> str:
        digest = hashlib.sha256()
        groups = (
            self.model.variables,
            self.model.optimizer.variables,
            self.model.metrics_variables,
        )
        for variable in (each for group in groups for each in group):
            digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(variable)).tobytes())
        return digest.hexdigest()

    def close(self) -> None:
        if self.ckpt is not None:
            self.ckpt.close()
