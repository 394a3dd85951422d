"""DeepFreezeCallback(mode="after_update"): variables taken within TensorFlow's graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepfreeze as df
from tests.frameworks.keras_kit import BACKEND, DeepFreezeCallback, keras

if BACKEND != "tensorflow":
    pytest.skip(
        f"KERAS_BACKEND is {BACKEND}, and only tensorflow has a graph", allow_module_level=True
    )
import tensorflow as tf

EPOCHS, BATCHES, BATCH = 2, 6, 8
ADAM: dict[str, Any] = {}
LATE_WRITERS: dict[str, dict[str, Any]] = {
    "none": ADAM,
    "average": {"use_ema": True, "ema_overwrite_frequency": 2},
    "accumulation": {"gradient_accumulation_steps": 2},
}


class Clips(keras.Model):  # type: ignore[misc]
    """Writes weights behind the optimizer."""

    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        for each in self.trainable_variables:
            each.assign(keras.ops.clip(each, -0.05, 0.05))
        return logs


def make_model(
    seed: int = 1, kind: Any = keras.Model, constraint: Any = None, steps: int = 1,
    loss_scale: bool = False, **more: Any,
) -> Any:  # fmt: skip
    keras.utils.set_random_seed(seed)
    first = keras.layers.Input((16,))
    x = keras.layers.Dense(192, activation="relu", kernel_constraint=constraint)(first)
    x = keras.layers.Dropout(0.3)(keras.layers.BatchNormalization()(x))
    x = keras.layers.Dense(1)(keras.layers.Dense(192)(x))
    model = kind(first, x)
    optimizer = keras.optimizers.Adam(1e-2, **more)
    if loss_scale:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "mse", metrics=["mae"], steps_per_execution=steps)
    return model


def fit(model: Any, *callbacks: Any, epochs: int = EPOCHS) -> None:
    x = np.random.default_rng(5).standard_normal((BATCHES * BATCH, 16), dtype=np.float32)
    model.fit(x, x[:, :1], BATCH, epochs, shuffle=False, verbose=0, callbacks=list(callbacks))


def values(model: Any) -> list[bytes]:
    groups = (model.variables, model.optimizer.variables, model.metrics_variables)
    return [keras.ops.convert_to_numpy(each).tobytes() for group in groups for each in group]


def arrays_in(tree: Any, path: str = "") -> Iterator[tuple[str, bytes]]:
    if isinstance(tree, dict):
        for name, each in tree.items():
            yield from arrays_in(each, f"{path}/{name}")
    else:
        yield path, np.asarray(tree).tobytes()


def saved(run: Path, model: Any, every: int = 1, mode: str = "after_update") -> dict[int, Any]:
    """Trains, and gives the saved values of the model by step."""
    with df.Checkpointer(run, every=df.every(steps=every)) as ckpt:
        fit(model, DeepFreezeCallback(ckpt, every=None, mode=mode))
        ckpt.wait()
        return {step: dict(arrays_in(ckpt.load(step)["model"])) for step in ckpt.steps()}


@pytest.mark.parametrize("late", LATE_WRITERS)
def test_is_what_the_window_captures(late: str, tmp_path: Path) -> None:
    window = saved(tmp_path / "window", make_model(**LATE_WRITERS[late]), mode="window")
    graph = saved(tmp_path / "graph", make_model(**LATE_WRITERS[late]))
    assert len(window) == EPOCHS * BATCHES
    assert graph == window
    assert graph[1] != graph[2]


@pytest.mark.parametrize("option", ["constraint", "train_step", "loss_scale"])
def test_what_is_written_behind_an_update_is_taken_behind_that(option: str, tmp_path: Path) -> None:
    def made() -> Any:
        if option == "constraint":
            return make_model(constraint=keras.constraints.MaxNorm(0.1))
        return make_model(kind=Clips) if option == "train_step" else make_model(loss_scale=True)

    window = saved(tmp_path / "window", made(), mode="window")
    assert saved(tmp_path / "graph", made()) == window


def test_a_step_in_the_middle_of_an_execution(tmp_path: Path) -> None:
    every_step = saved(tmp_path / "window", make_model(), mode="window")
    found = saved(tmp_path / "graph", make_model(steps=4), every=5)
    # Calls of 4 and 2 batches: in 1 to 4 none is due, in 5 and 6 the fifth, in 7 to 10 the tenth.
    assert list(found) == [5, 10]
    assert found == {step: every_step[step] for step in found}


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_resumes_in_the_middle_of_an_execution(steps: int, tmp_path: Path) -> None:
    whole = make_model()
    fit(whole)
    saved(tmp_path / "run", make_model(steps=4), every=5)
    resumed = make_model(seed=9, steps=steps)
    fit(resumed, DeepFreezeCallback(tmp_path / "run", every=None))
    assert values(resumed) == values(whole)


def test_nothing_is_held_once_it_is_saved(tmp_path: Path) -> None:
    model = make_model()
    freeze = DeepFreezeCallback(tmp_path / "run", every=None, mode="after_update")
    held = []

    class Looks(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            held.extend(int(np.size(each._kept)) for each in freeze._graph._shadows.values())

    fit(model, freeze, Looks())
    assert held
    assert not any(held)


def test_a_model_has_its_own_step_back(tmp_path: Path) -> None:
    model = make_model()
    saved(tmp_path / "run", model)
    assert "train_step" not in vars(model)
    assert "update_step" not in vars(model.optimizer)
    fit(model)  # which is traced anew


def test_a_variable_made_later_is_named(tmp_path: Path) -> None:
    model = make_model()

    class Adds(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.late = keras.Variable(np.zeros(3, np.float32), name="late")

    with pytest.raises(df.EncodeError, match=r"late was made after fit\(\) had begun"):
        fit(model, Adds(), DeepFreezeCallback(tmp_path / "run", every=None, mode="after_update"))


def test_a_rule_that_can_not_be_known_in_advance_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"mode after_update is for .* every=None or"):
        DeepFreezeCallback(tmp_path / "run", mode="after_update")
    freeze = DeepFreezeCallback(tmp_path / "run", every=df.every(seconds=1), mode="after_update")
    with pytest.raises(ValueError, match=r"the policy is every 1 s"):
        fit(make_model(), freeze)


class Counts(keras.layers.Layer):  # type: ignore[misc]
    """Has a variable that Keras knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        self.count = (tf.Variable(0.0),)

    def call(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize("late", [False, True])
def test_variables_that_are_not_keras_are_refused(late: bool, tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Input((16,)), Counts(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    class Adds(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            model.layers[0].late = tf.Variable(0.0)

    freeze = DeepFreezeCallback(tmp_path / "run", every=None, mode="after_update")
    if not late:
        with pytest.raises(ValueError, match=r"alone, not 2\.count\.0 of the model's layers"):
            fit(model, freeze)
        return
    del model.layers[0].count
    with pytest.raises(df.EncodeError, match=r"untracked: made after fit\(\) had begun: 2\.late"):
        fit(model, Adds(), freeze)


def test_as_many_variables_as_the_optimizer_has_of_its_own(tmp_path: Path) -> None:
    """One layer, of a kernel and a bias; the optimizer, its count of steps and learning rate."""

    def made() -> Any:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(1e-2), "mse")
        return model

    window = saved(tmp_path / "window", made(), mode="window")
    assert saved(tmp_path / "graph", made()) == window


def test_a_step_that_xla_compiles_is_refused(tmp_path: Path) -> None:
    model = make_model()
    model.compile("adam", "mse", jit_compile=True)
    with pytest.raises(ValueError, match=r"mode after_update needs compile\(jit_compile=False\)"):
        fit(model, DeepFreezeCallback(tmp_path / "run", every=None, mode="after_update"))


def test_a_step_that_is_run_eagerly(tmp_path: Path) -> None:
    def made() -> Any:
        model = make_model()
        model.compile("adam", "mse", run_eagerly=True)
        return model

    window = saved(tmp_path / "window", made(), every=3, mode="window")
    assert saved(tmp_path / "graph", made(), every=3) == window
