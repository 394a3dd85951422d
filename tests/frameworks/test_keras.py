"""Features special to Keras 3, on the backend of KERAS_BACKEND."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import deepfreeze as df
from lab.experiments import keras_resume
from tests.frameworks.keras_kit import BACKEND, alike_on_all, keras, only_on
from tests.frameworks.training import IMPORTS
from tests.support import warm_python

ROOT = Path(__file__).resolve().parents[2]
EPOCHS, BATCHES, BATCH = 3, 4, 8


def make_model(seed: int = 1, last: str = "last", **more: Any) -> Any:
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([
        keras.layers.Input((16,)),
        keras.layers.Dense(256, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.3),
        keras.layers.Dense(256, activation="relu"),
        keras.layers.Dense(1, name=last),
    ])  # fmt: skip
    model.compile(keras.optimizers.Adam(1e-2), loss="mse", metrics=["mae"], **more)
    return model


def data(rows: int = BATCHES * BATCH) -> tuple[Any, Any]:
    x = np.random.default_rng(5).standard_normal((rows, 16), dtype=np.float32)
    return x, x[:, :1] ** 2


def fit(model: Any, *callbacks: Any, epochs: int = EPOCHS, **more: Any) -> dict[str, list[float]]:
    x, y = data()
    history: dict[str, list[float]] = model.fit(
        x, y, BATCH, epochs, shuffle=False, verbose=0, callbacks=list(callbacks), **more
    ).history
    return history


def values(model: Any) -> list[bytes]:
    groups = (model.variables, model.optimizer.variables, model.metrics_variables)
    return [keras.ops.convert_to_numpy(each).tobytes() for group in groups for each in group]


class Dies(keras.callbacks.Callback):
    """Ends fit() as a killed process would be ended, but leaves the process alive."""

    def __init__(self, epoch: int, batch: int | None = None) -> None:
        super().__init__()
        self.at = (epoch, batch)
        self.epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == self.at:
            raise KeyboardInterrupt

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if (epoch, None) == self.at:
            raise KeyboardInterrupt


def dies(model: Any, *callbacks: Any, at: tuple[int, int | None], **more: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(model, *callbacks, Dies(*at), **more)


def callback(run: Path, **more: Any) -> Any:
    from deepfreeze.keras import DeepFreezeCallback

    return DeepFreezeCallback(run, **more)


@pytest.mark.parametrize(
    "batch", [pytest.param(0, marks=alike_on_all), 1, pytest.param(BATCHES - 1, marks=alike_on_all)]
)
def test_resumes_within_an_epoch(batch: int, tmp_path: Path) -> None:
    whole = make_model()
    history = fit(whole)
    with df.Checkpointer(tmp_path / "run") as ckpt:
        dies(make_model(), callback(ckpt, every=None), at=(1, batch))
    resumed = make_model(seed=9)
    rest = fit(resumed, callback(tmp_path / "run", every=None))
    assert values(resumed) == values(whole)
    assert rest == {name: logs[1:] for name, logs in history.items()}


def test_resumes_behind_an_epoch(tmp_path: Path) -> None:
    whole = make_model()
    history = fit(whole)
    with df.Checkpointer(tmp_path / "run") as ckpt:
        dies(make_model(), callback(ckpt), at=(1, 2))
        ckpt.wait()
        assert ckpt.steps() == [BATCHES]
    resumed = make_model(seed=9)
    assert fit(resumed, callback(tmp_path / "run"))["loss"] == history["loss"][1:]
    assert values(resumed) == values(whole)


@alike_on_all
def test_a_second_fit_trains_the_epochs_that_are_left(tmp_path: Path) -> None:
    whole = make_model()
    fit(whole)
    parted, freeze = make_model(), callback(tmp_path / "run")
    fit(parted, freeze, epochs=2)
    assert len(fit(parted, freeze)["loss"]) == 1
    assert values(parted) == values(whole)
    assert len(fit(parted, epochs=1)["loss"]) == 1  # without it fit() begins at its own epoch


@pytest.mark.parametrize("given", [True, False])
@alike_on_all
def test_a_callback_goes_on_counting(given: bool, tmp_path: Path) -> None:
    def stopper() -> Any:
        return keras.callbacks.EarlyStopping("loss", min_delta=1e9, patience=3)

    first, second = stopper(), stopper()
    with df.Checkpointer(tmp_path / "run") as ckpt:
        own = [first] if given else []
        dies(make_model(), first, callback(ckpt, callbacks=own), at=(2, 0), epochs=9)
    second.patience = 2
    freeze = callback(tmp_path / "run", callbacks=[second] if given else [])
    history = fit(make_model(), second, freeze, epochs=9)
    # Two epochs before, of which one was no better; its patience is an argument, and stays.
    assert len(history["loss"]) == (1 if given else 3)


@alike_on_all
def test_what_has_stopped_early_trains_no_more(tmp_path: Path) -> None:
    early = keras.callbacks.EarlyStopping("loss", min_delta=1e9, patience=1)
    fit(make_model(), early, callback(tmp_path / "run", callbacks=[early]), epochs=9)
    again = keras.callbacks.EarlyStopping("loss", min_delta=1e9, patience=1)
    history = fit(make_model(), again, callback(tmp_path / "run", callbacks=[again]), epochs=9)
    assert history == {}


class Limit(keras.callbacks.Callback):
    """Stops within an epoch, as a limit of time does."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = batch == 1


@alike_on_all
def test_what_was_cut_short_goes_on_in_its_epoch(tmp_path: Path) -> None:
    whole = make_model()
    fit(whole)
    history = fit(make_model(), Limit(), callback(tmp_path / "run"))
    assert len(history["loss"]) == 1
    resumed = make_model(seed=9)
    assert len(fit(resumed, callback(tmp_path / "run"))["loss"]) == EPOCHS
    assert values(resumed) == values(whole)


@pytest.mark.skipif(BACKEND == "torch", reason="Keras on torch refuses steps_per_execution > 1")
def test_resumes_where_several_steps_are_one_execution(tmp_path: Path) -> None:
    whole = make_model(steps_per_execution=2)
    fit(whole)
    with df.Checkpointer(tmp_path / "run") as ckpt:
        dies(make_model(steps_per_execution=2), callback(ckpt, every=None), at=(1, 1))
        ckpt.wait()
        assert ckpt.steps() == [2, 4, 6]
    resumed = make_model(seed=9, steps_per_execution=2)
    fit(resumed, callback(tmp_path / "run", every=None))
    assert values(resumed) == values(whole)


@alike_on_all
def test_an_epoch_with_fewer_batches_is_refused(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "run") as ckpt:
        dies(make_model(), callback(ckpt, every=None), at=(1, 2))
    x, y = data(2 * BATCH)
    model = make_model()
    function = model.make_train_function() or model.train_function
    with pytest.raises(df.MismatchError, match="resume epoch 1: it was saved after 3 batches"):
        model.fit(
            x, y, BATCH, EPOCHS, shuffle=False, verbose=0,
            callbacks=[callback(tmp_path / "run", every=None)],
        )  # fmt: skip
    assert model.train_function is function


@alike_on_all
def test_saves_what_its_policy_says(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(make_model(), callback(run, every=df.every(steps=5), keep=df.keep(last=1)))
    with df.Checkpointer(run) as ckpt:
        assert ckpt.steps() == [10]
    with (
        pytest.raises(ValueError, match="a Checkpointer has its own"),
        df.Checkpointer(run) as ckpt,
    ):
        callback(ckpt, keep=df.keep(last=1))


@alike_on_all
def test_keeps_the_best_by_what_fit_measures(tmp_path: Path) -> None:
    fit(make_model(), callback(tmp_path / "run", keep=df.keep(best=("val_loss", "max"))),
        validation_data=data(BATCH))  # fmt: skip
    with df.Checkpointer(tmp_path / "run") as ckpt:
        assert all("val_loss" in info.metrics for info in ckpt.checkpoints())


# Plain states


def trained(seed: int = 1, **more: Any) -> Any:
    model = make_model(seed, **more)
    model.train_on_batch(*data(BATCH))
    return model


def test_a_model_in_a_state(tmp_path: Path) -> None:
    saved, live = trained(), make_model(seed=2)
    with df.Checkpointer(tmp_path / "run", profile="latency") as ckpt:
        if BACKEND == "torch":
            ckpt.attach(saved.optimizer)
        handle = ckpt.save(1, {"model": saved, "optim": saved.optimizer})
        expected = values(saved)
        saved.train_on_batch(*data(BATCH))
        assert handle is not None
        handle.wait()
        assert handle.status().guarded_bytes == 3 * 256 * 256 * 4
        live.train_on_batch(*data(BATCH))  # makes the metrics
        ckpt.restore({"model": live, "optim": live.optimizer})
        assert values(live) == expected
        stored = ckpt.load()
    kernel = stored["model"]["variables"]["0.sequential/dense/kernel"]
    assert tuple(kernel.shape) == (16, 256)


def test_a_callback_of_ones_own_saves_within_fit(tmp_path: Path) -> None:
    saved, live = make_model(), trained(seed=2)
    expected = []
    with df.Checkpointer(tmp_path / "run", profile="latency") as ckpt:

        def save(batch: int, logs: Any) -> None:
            ckpt.save(batch, {"model": saved})  # not Callback.model, which syncs on jax
            expected.append(values(saved))

        fit(saved, keras.callbacks.LambdaCallback(on_train_batch_end=save), epochs=1)
        for batch in range(BATCHES):
            ckpt.restore({"model": live}, batch)
            assert values(live) == expected[batch]


def test_what_was_restored_shares_no_memory(tmp_path: Path) -> None:
    model = trained()
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"model": model, "again": list(model.variables)})
        others = [
            keras.Variable(keras.ops.zeros(each.shape, each.dtype), trainable=False)
            for each in model.variables
        ]
        ckpt.restore({"model": model, "again": others})
    before = [keras.ops.convert_to_numpy(each).tobytes() for each in others]
    model.train_on_batch(*data(BATCH))
    assert [keras.ops.convert_to_numpy(each).tobytes() for each in others] == before


@alike_on_all
def test_another_layer_is_named(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"model": trained()})
        live = trained(last="head")
        before = values(live)
        with pytest.raises(
            df.MismatchError,
            match=r"last/kernel: the live variable in its place is 9\.sequential/head",
        ):
            ckpt.restore({"model": live})
        assert values(live) == before


@alike_on_all
def test_a_model_that_is_not_compiled_is_told_of(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"model": trained()})
        live = keras.Sequential(make_model().layers)
        with pytest.raises(df.MismatchError, match=r"model\.optimizer: .* compile the model"):
            ckpt.restore({"model": live})
        ckpt.restore({"model": live}, keys=["model.variables.*"])


def test_mixed_precision_is_stored_as_it_is_kept(tmp_path: Path) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        saved, live = trained(), trained(seed=2)
    finally:
        keras.config.set_dtype_policy("float32")
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"model": saved})
        ckpt.restore({"model": live})
        opened = df._core.open_checkpoint(ckpt.checkpoints()[0])
        assert "F16" not in {each.dtype for each in opened.tensors()}
    assert values(live) == values(saved)


@only_on("tensorflow", "tf.Module is TensorFlow's")
def test_layers_within_a_module_of_tensorflow_keep_their_seeds(tmp_path: Path) -> None:
    import tensorflow as tf

    def holder(seed: int) -> Any:
        keras.utils.set_random_seed(seed)
        module = tf.Module()
        module.layers = [keras.layers.Dense(3), keras.layers.Dropout(0.5)]
        module.layers[0].build((None, 2))
        return module

    def output(module: Any) -> Any:
        x = np.ones((4, 2), np.float32)
        return module.layers[1](module.layers[0](x), training=True).numpy()

    saved, live = holder(1), holder(2)
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"net": saved})
        ckpt.restore({"net": live})
    assert (output(saved) == output(live)).all()


def test_the_global_seed_generator_is_among_the_rngs(tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    keras.random.normal((2,))
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"rng": df.RNG()})
        expected = keras.ops.convert_to_numpy(keras.random.normal((2,)))
        keras.utils.set_random_seed(2)
        ckpt.restore({"rng": df.RNG()})
    assert (keras.ops.convert_to_numpy(keras.random.normal((2,))) == expected).all()


# The fence of the torch backend


@pytest.mark.skipif(BACKEND == "torch", reason="Keras on torch needs attach(): the next test")
def test_an_optimizer_need_not_be_attached(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "run") as ckpt, pytest.raises(TypeError, match="attach: "):
        ckpt.attach(keras.optimizers.SGD())


@only_on("torch", "attach() is refused there")
def test_detaching_leaves_the_optimizer_as_it_was(tmp_path: Path) -> None:
    optimizer = keras.optimizers.SGD()
    for run in ("one", "other"):
        with df.Checkpointer(tmp_path / run) as ckpt:
            ckpt.attach(optimizer)
            assert "apply" in vars(optimizer)
        assert "apply" not in vars(optimizer)
    first, second = df.Checkpointer(tmp_path / "one"), df.Checkpointer(tmp_path / "other")
    first.attach(optimizer)
    second.attach(optimizer)
    first.close()
    assert "apply" in vars(optimizer)
    second.close()
    assert "apply" not in vars(optimizer)


# Pages and programs


@alike_on_all
def test_the_example_of_its_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs/frameworks/keras.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    command = [sys.executable, "-c", example]
    for _ in range(2):  # the second time nothing is left to train
        warm_python.run(command, IMPORTS[f"keras_{BACKEND}"], cwd=tmp_path, check=True)
    with df.Checkpointer(tmp_path / "runs/keras") as ckpt:
        assert ckpt.latest() is not None


@only_on("tensorflow", "its four formats are compared there")
def test_keras_own_formats_lose_the_seeds_of_dropout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], *, env: dict[str, str], **_: Any) -> Any:
        return warm_python.run(command, IMPORTS["keras_tensorflow"], env=env, capture_output=True)

    out = tmp_path / "result.json"
    ours, theirs = "DeepFreezeCallback, within an epoch", ".keras"  # all: lab/results
    monkeypatch.setattr(keras_resume, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setattr(sys, "argv", ["", "--json", str(out), "--formats", ours, theirs])
    monkeypatch.chdir(ROOT)
    assert keras_resume.main() == 0
    assert json.loads(out.read_text()) == {
        ours: {"without dropout": "bit-identical", "with dropout": "bit-identical"},
        theirs: {"without dropout": "bit-identical", "with dropout": "other weights"},
    }
