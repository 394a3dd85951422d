"""Keras under tf.distribute.MirroredStrategy, on two devices of this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepfreeze as df

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"
keras = pytest.importorskip("keras", reason="of build/frameworks-venv")

import tensorflow as tf  # noqa: E402 (Keras may be missing)

from deepfreeze.keras import DeepFreezeCallback  # noqa: E402

X = np.random.default_rng(0).standard_normal((64, 16), dtype=np.float32)


@pytest.fixture(scope="module")
def strategy() -> Any:
    device = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(device, two)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def made(strategy: Any, seed: int = 1) -> Any:
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        layers = [keras.layers.Dense(96), keras.layers.BatchNormalization()]
        layers += [keras.layers.Dropout(0.2), keras.layers.Dense(192), keras.layers.Dense(1)]
        model = keras.Sequential([keras.layers.Input((16,)), *layers])
        model.compile("adam", "mse", metrics=["mae"])
    return model


def fit(model: Any, *callbacks: Any, epochs: int = 2) -> None:
    model.fit(X, X[:, :1], 16, epochs, shuffle=False, verbose=0, callbacks=list(callbacks))


def components(model: Any) -> list[list[bytes]]:
    groups = (model.variables, model.optimizer.variables, model.metrics_variables)
    return [
        [each.numpy().tobytes() for each in variable._value.values]
        for group in groups
        for variable in group
    ]


class Ends(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 2:
            raise KeyboardInterrupt


def test_resumes_with_what_each_replica_had(strategy: Any, tmp_path: Path) -> None:
    whole = made(strategy)
    fit(whole)
    parts = components(whole)
    assert any(a != b for a, b in parts)  # the batch statistics
    with df.Checkpointer(tmp_path / "run") as ckpt:
        with pytest.raises(KeyboardInterrupt):
            fit(made(strategy), DeepFreezeCallback(ckpt, every=None), Ends())
        ckpt.wait()
        values = ckpt.load()["model"]["variables"]
        named = {name.rpartition("/")[2]: value for name, value in values.items()}
        assert isinstance(named["kernel"], np.ndarray)  # alike, and stored once
        assert set(named["moving_mean"]) == {"0", "1"}
    resumed = made(strategy, seed=9)
    fit(resumed, DeepFreezeCallback(tmp_path / "run", every=None))
    assert components(resumed) == parts


def test_what_was_stored_once_comes_into_every_replica(strategy: Any, tmp_path: Path) -> None:
    plain = tf.Variable(tf.ones([3]))
    with strategy.scope():
        mirrored = tf.Variable(tf.zeros([3]))
        own = tf.Variable(
            tf.zeros([3]), synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM, trainable=False,
        )  # fmt: skip
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"v": plain, "w": plain})
        ckpt.restore({"v": mirrored, "w": own})
        for variable in (mirrored, own):
            assert [each.numpy().tolist() for each in variable.values] == [[1, 1, 1]] * 2
        own.values[1].assign([5, 6, 7])
        ckpt.save(2, {"v": mirrored, "w": own})
        own.values[1].assign([0, 0, 0])
        ckpt.restore({"v": mirrored, "w": own}, 2)
        assert [each.numpy().tolist() for each in own.values] == [[1, 1, 1], [5, 6, 7]]
        with pytest.raises(df.MismatchError, match=r"w: stored"):
            ckpt.restore({"v": plain, "w": plain}, 2)


def test_the_graph_knows_no_strategy(strategy: Any, tmp_path: Path) -> None:
    freeze = DeepFreezeCallback(tmp_path / "run", every=None, mode="after_update")
    with pytest.raises(ValueError, match="after_update supports no distribution strategy"):
        fit(made(strategy), freeze)
