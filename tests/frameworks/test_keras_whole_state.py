"""Values of a Keras model that are in none of its lists, and still belong to its state."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepfreeze as df
from tests.frameworks.keras_kit import DeepFreezeCallback, alike_on_all, keras, only_on

X = np.random.default_rng(0).standard_normal((64, 4), dtype=np.float32)


def moved(run: Path, saved: Any, live: Any) -> None:
    """Saves one object, and restores it into another."""
    with df.Checkpointer(run) as ckpt:
        handle = ckpt.save(1, {"it": saved})
        assert handle is not None
        handle.wait()
        ckpt.restore({"it": live})


def numbers(value: Any) -> Any:
    return np.array(keras.ops.convert_to_numpy(value))


def net(optimizer: Any = "adam", **more: Any) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **more)
    return model


class Ends(keras.callbacks.Callback):  # type: ignore[misc]
    """Interrupts fit() after so many of its batches."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def fit(run: Path | None, model: Any, *data: Any, ends: int = 0, **more: Any) -> list[bytes]:
    """Trains, saving each third batch if there is a run; its weights, if it was not ended."""
    calls = more.pop("callbacks", [])
    freeze = [DeepFreezeCallback(run, every=df.every(steps=3), callbacks=calls)] if run else []
    options = {"batch_size": 8, "epochs": 3, "shuffle": False, "verbose": 0, **more}
    try:
        model.fit(*data, callbacks=[*calls, *freeze, *([Ends(ends)] if ends else [])], **options)
    except KeyboardInterrupt:
        for each in freeze:
            each._ckpt.close()
    return [each.tobytes() for each in model.get_weights()]


def assert_resumes(
    run: Path, make: Callable[[], Any], *data: Any, ends: int = 5, **more: Any
) -> None:
    """A run that is interrupted after `ends` batches and restarted ends as an uninterrupted one."""
    whole = fit(None, make(), *data, **more)
    fit(run, make(), *data, ends=ends, **more)
    assert fit(run, make(), *data, **more) == whole


@pytest.mark.parametrize("optimizer", ["nadam", "adafactor", "scaled"])
def test_the_slots_of_any_optimizer(optimizer: str, tmp_path: Path) -> None:
    def made() -> Any:
        scaled = optimizer == "scaled"
        own = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()) if scaled else optimizer
        return net(own)

    assert_resumes(tmp_path / "run", made, X, X[:, :1])


def test_what_normalization_derives(tmp_path: Path) -> None:
    def made() -> Any:
        return keras.Sequential([keras.layers.Input((4,)), keras.layers.Normalization()])

    saved, live = made(), made()
    saved.layers[0].adapt(X * 3 + 5)
    moved(tmp_path / "run", saved, live)
    assert live(X).shape == X.shape
    assert numbers(live(X)).tobytes() == numbers(saved(X)).tobytes()


class Adversaries(keras.Model):  # type: ignore[misc]
    """Has two optimizers that compile() does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.d = keras.layers.Dense(1)
        self.d.build((None, 4))
        self.built = True
        self.d_optimizer = keras.optimizers.Adam()
        self.others = [keras.optimizers.SGD(momentum=0.9)]
        self.more = (keras.optimizers.RMSprop(),)
        for each in (self.d_optimizer, *self.others, *self.more):
            each.build(self.d.trainable_variables)


def test_optimizers_that_are_not_compiled(tmp_path: Path) -> None:
    saved, live = Adversaries(), Adversaries()
    for optimizer in (saved.d_optimizer, *saved.others, *saved.more):
        for each in optimizer.variables:
            each.assign(np.full(each.shape, 7))
    moved(tmp_path / "run", saved, live)
    for optimizer in (live.d_optimizer, *live.others, *live.more):
        assert all((numbers(each) == 7).all() for each in optimizer.variables)


def test_the_states_of_a_recurrent_layer(tmp_path: Path) -> None:
    def made() -> Any:
        layer = keras.layers.Bidirectional(keras.layers.LSTM(2, stateful=True))
        layer.build((2, 3, 4))
        return layer

    saved, live = made(), made()
    saved(np.ones((2, 3, 4), np.float32))
    moved(tmp_path / "run", saved, live)
    for part in ("forward_layer", "backward_layer"):
        for a, b in zip(getattr(saved, part).states, getattr(live, part).states, strict=True):
            assert numbers(a).any()
            assert numbers(a).tobytes() == numbers(b).tobytes()


@only_on("tensorflow", "these variables are TensorFlow's")
def test_variables_and_generators_of_tensorflow_in_a_layer(tmp_path: Path) -> None:
    import tensorflow as tf

    class Counts(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.count = tf.Variable(0.0)
            self.more = [tf.Variable(0.0)]
            self.fixed = (tf.Variable(0.0), 1)
            self.noise = tf.random.Generator.from_seed(1)

    saved, live = Counts(), Counts()
    saved.count.assign(3.0)
    saved.more[0].assign(4.0)
    saved.fixed[0].assign(5.0)
    saved.noise.uniform([5])
    moved(tmp_path / "run", saved, live)
    assert (float(live.count), float(live.more[0]), float(live.fixed[0])) == (3.0, 4.0, 5.0)
    assert live.noise.state.numpy().tolist() == saved.noise.state.numpy().tolist()


@only_on("torch", "TorchModuleWrapper is torch's")
def test_the_buffers_of_a_module_of_torch(tmp_path: Path) -> None:
    import torch

    def made() -> Any:
        return keras.layers.TorchModuleWrapper(torch.nn.BatchNorm1d(4))

    saved, live = made(), made()
    saved.module.train()(torch.from_numpy(X))
    moved(tmp_path / "run", saved, live)
    for name, each in saved.module.state_dict().items():
        assert torch.equal(each, live.module.state_dict()[name])
    assert saved.module.running_mean.any()


def test_metrics_of_the_model_itself(tmp_path: Path) -> None:
    def made() -> Any:
        model = net()
        model.seen = keras.metrics.Sum(name="seen")
        return model

    saved, live = made(), made()
    saved.train_on_batch(X, X[:, :1])
    saved.seen.update_state(5.0)
    moved(tmp_path / "run", saved, live)
    assert float(live.seen.result()) == 5.0


def test_a_layer_more_takes_nobody_elses_weights(tmp_path: Path) -> None:
    def made(*names: str) -> Any:
        layers = [keras.layers.Dense(4, name=name) for name in names]
        return keras.Sequential([keras.layers.Input((4,)), *layers])

    saved, live = made("p", "q"), made("new", "p", "q")
    before = numbers(live.get_layer("new").kernel).tobytes()
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"it": saved})
        ckpt.restore({"it": live}, strict=False)
        assert ckpt.last_restore is not None
        assert len(ckpt.last_restore.missing) == 2
    for name in ("p", "q"):
        a, b = numbers(saved.get_layer(name).kernel), numbers(live.get_layer(name).kernel)
        assert a.tobytes() == b.tobytes()
    assert numbers(live.get_layer("new").kernel).tobytes() == before


def test_weights_alone_build_no_optimizer(tmp_path: Path) -> None:
    saved, live = net(), net()
    saved.train_on_batch(X, X[:, :1])
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"it": saved})
        ckpt.restore({"it": live}, keys=["it.variables.*"])
    assert numbers(live.layers[0].kernel).tobytes() == numbers(saved.layers[0].kernel).tobytes()
    assert not live.optimizer.built


def test_what_adapt_gives_is_told_of(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    layer = keras.layers.Discretization(num_bins=3)
    layer.adapt(X)
    with caplog.at_level(logging.WARNING, "deepfreeze"), df.Checkpointer(tmp_path / "r") as ckpt:
        ckpt.save(1, {"it": layer})
    assert "the result of adapt() in a layer Discretization is not stored" in caplog.text


# Resuming


def test_goes_on_in_data_that_is_one_stream_for_all_epochs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stream() -> Any:
        draws = np.random.default_rng(3)
        while True:
            batch = draws.standard_normal((8, 4), dtype=np.float32)
            yield batch, batch[:, :1]

    options: dict[str, Any] = {"steps_per_epoch": 4, "batch_size": None}
    whole = fit(None, net(), stream(), **options)
    for place, ends in (("within", 7), ("between", 6 + 4)):  # saved after 6, and after 9
        run = tmp_path / place
        fit(run, net(), stream(), ends=ends, **options)
        with caplog.at_level(logging.WARNING, "deepfreeze"):
            assert fit(run, net(), stream(), **options) == whole
    assert "drawing 4 batches of earlier epochs anew" in caplog.text


@alike_on_all
def test_goes_on_behind_an_epoch_of_a_stream(tmp_path: Path) -> None:
    def stream() -> Any:
        draws = np.random.default_rng(3)
        while True:
            batch = draws.standard_normal((8, 4), dtype=np.float32)
            yield batch, batch[:, :1]

    def train(epochs: int, *callbacks: Any) -> Any:
        model = net()
        model.fit(stream(), steps_per_epoch=4, epochs=epochs, verbose=0, callbacks=list(callbacks))
        return [each.tobytes() for each in model.get_weights()]

    whole = train(3)
    train(2, DeepFreezeCallback(tmp_path / "run"))
    assert train(3, DeepFreezeCallback(tmp_path / "run")) == whole


class Warms(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the learning rate by its own count of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.newest: deque[int] = deque(maxlen=2)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.count += 1
        self.newest.append(self.count)
        self.model.optimizer.learning_rate = 0.1 / (1 + self.count)


@alike_on_all
def test_other_callbacks_count_no_batch_twice(tmp_path: Path) -> None:
    def train(run: Path | None, ends: int = 0) -> tuple[list[bytes], Warms]:
        warms = Warms()
        return fit(run, net("sgd"), X, X[:, :1], ends=ends, callbacks=[warms]), warms

    whole, counted = train(None)
    train(tmp_path / "run", ends=4)
    resumed, again = train(tmp_path / "run")
    assert (again.count, again.newest) == (counted.count, counted.newest)
    assert resumed == whole


@only_on("tensorflow", "each backend has another train_step")
def test_a_train_step_that_wants_no_targets(tmp_path: Path) -> None:
    import tensorflow as tf

    class AutoEncoder(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.d = keras.layers.Dense(4)
            self.d.build((None, 4))
            self.built = True

        def call(self, x: Any) -> Any:
            return self.d(x)

        def train_step(self, data: Any) -> Any:
            x = data[0] if isinstance(data, tuple) else data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x=x, y=x, y_pred=self(x))
            changes = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply(changes, self.trainable_weights)
            return {"loss": loss}

    def made() -> Any:
        keras.utils.set_random_seed(1)
        model = AutoEncoder()
        model.compile("adam", loss="mse")
        return model

    assert_resumes(tmp_path / "run", made, X)


@pytest.mark.parametrize("ends", [12, 1])  # of the resumed fit(), while it passes batches over
@alike_on_all
def test_an_interrupted_fit_leaves_a_model_that_trains(ends: int, tmp_path: Path) -> None:
    fit(tmp_path / "run", net(), X, X[:, :1], ends=11)
    model = net()
    fit(tmp_path / "run", model, X, X[:, :1], ends=ends)
    before = [each.tobytes() for each in model.get_weights()]
    history = model.fit(X, X[:, :1], epochs=2, verbose=0).history
    assert len(history["loss"]) == 2
    assert [each.tobytes() for each in model.get_weights()] != before


@alike_on_all
def test_a_checkpointer_with_a_rule_decides(tmp_path: Path) -> None:
    for place, rule, steps in (("own", df.every(steps=3), [3, 6]), ("none", None, [8])):
        with df.Checkpointer(tmp_path / place, every=rule) as ckpt:
            net().fit(X, X[:, :1], 8, shuffle=False, verbose=0,
                      callbacks=[DeepFreezeCallback(ckpt)])  # fmt: skip
            ckpt.wait()
            assert ckpt.steps() == steps


@alike_on_all
def test_an_order_that_nothing_restores_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit(tmp_path / "run", net(), X, X[:, :1], ends=4, shuffle=True)
    with caplog.at_level(logging.WARNING, "deepfreeze"):
        fit(tmp_path / "run", net(), X, X[:, :1], shuffle=True)
    assert "nothing restores the order" in caplog.text


def test_a_global_generator_that_had_not_been_used(tmp_path: Path) -> None:
    keras.utils.set_random_seed(3)
    from keras.src.backend.common.global_state import set_global_attribute

    set_global_attribute("global_seed_generator", None)
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"rng": df.RNG()})
        first = numbers(keras.random.uniform((3,)))
        ckpt.restore({"rng": df.RNG()})
        assert numbers(keras.random.uniform((3,))).tobytes() == first.tobytes()
