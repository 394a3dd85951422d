"""One process of keras_resume.py: trains a part, by one format. Run by that program alone."""

import argparse
import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import deepfreeze as df
from deepfreeze.keras import DeepFreezeCallback

SEED, OTHER_SEED = 20, 77
BATCH, BATCHES, WIDTH = 16, 6, 32


def make_model(dropout: float) -> Any:
    layers = [keras.layers.Dense(WIDTH, activation="relu"), keras.layers.BatchNormalization()]
    if dropout:
        layers.append(keras.layers.Dropout(dropout))
    model = keras.Sequential([keras.layers.Input((WIDTH,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), keras.losses.MeanSquaredError())
    return model


def fit(model: Any, epochs: int, first: int = 0, callback: Any = None) -> None:
    generator = np.random.default_rng(SEED)
    x = generator.standard_normal((BATCH * BATCHES, WIDTH), dtype=np.float32)
    callbacks = [] if callback is None else [callback]
    model.fit(
        x, x[:, :1], BATCH, epochs, initial_epoch=first, shuffle=False, verbose=0,
        callbacks=callbacks,
    )  # fmt: skip


def digest(model: Any) -> str:
    found = hashlib.sha256()
    for variable in (*model.weights, *model.optimizer.variables):
        found.update(keras.ops.convert_to_numpy(variable).tobytes())
    return found.hexdigest()


@dataclass(frozen=True)
class Format:
    """`first` trains an epoch and saves below a directory, `second` goes on; it gives the model."""

    first: Callable[[Any, Path], None]
    second: Callable[[Any, Path], Any]


def files(name: str, save: str, load: Callable[[Any, str], Any]) -> Format:
    def first(model: Any, place: Path) -> None:
        fit(model, 1)
        getattr(model, save)(str(place / name))

    def second(model: Any, place: Path) -> Any:
        model = load(model, str(place / name))
        fit(model, 2, first=1)
        return model

    return Format(first, second)


def load_weights(model: Any, path: str) -> Any:
    model.optimizer.build(model.trainable_variables)
    model.load_weights(path)
    return model


def load_model(_: Any, path: str) -> Any:
    return keras.saving.load_model(path)


def checkpoint_of(model: Any) -> Any:
    model.optimizer.build(model.trainable_variables)
    return tf.train.Checkpoint(model=model, optimizer=model.optimizer)


def save_checkpoint(model: Any, place: Path) -> None:
    fit(model, 1)
    checkpoint_of(model).write(str(place / "checkpoint"))


def load_checkpoint(model: Any, place: Path) -> Any:
    checkpoint_of(model).read(str(place / "checkpoint")).assert_existing_objects_matched()
    fit(model, 2, first=1)
    return model


def by_callback(make: Callable[[Path], Any]) -> Format:
    def first(model: Any, place: Path) -> None:
        fit(model, 1, callback=make(place / "run"))

    def second(model: Any, place: Path) -> Any:
        fit(model, 2, callback=make(place / "run"))
        return model

    return Format(first, second)


class Ends(DeepFreezeCallback):
    """Ends the process after the second batch of the second epoch."""

    def __init__(self, ckpt: df.Checkpointer) -> None:
        super().__init__(ckpt, every=None)
        self._own = ckpt

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(batch, logs)
        if self.state["progress"]["step"] == BATCHES + 2:
            self._own.wait()
            os._exit(0)


def end_within_an_epoch(model: Any, place: Path) -> None:
    fit(model, 2, callback=Ends(df.Checkpointer(place / "run")))


def resume_within_an_epoch(model: Any, place: Path) -> Any:
    fit(model, 2, callback=DeepFreezeCallback(place / "run", every=None))
    return model


FORMATS: dict[str, Format] = {
    ".weights.h5": files("m.weights.h5", "save_weights", load_weights),
    ".keras": files("m.keras", "save", load_model),
    ".h5 (legacy)": files("m.h5", "save", load_model),
    "tf.train.Checkpoint": Format(save_checkpoint, load_checkpoint),
    "BackupAndRestore": by_callback(
        lambda place: keras.callbacks.BackupAndRestore(str(place), delete_checkpoint=False)
    ),
    "DeepFreezeCallback": by_callback(DeepFreezeCallback),
    "DeepFreezeCallback, within an epoch": Format(end_within_an_epoch, resume_within_an_epoch),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("whole", "first", "second"))
    parser.add_argument("--format", choices=FORMATS)
    parser.add_argument("--dropout", type=float, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    options = parser.parse_args()
    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(OTHER_SEED if options.part == "second" else SEED)
    model = make_model(options.dropout)
    if options.part == "whole":
        fit(model, 2)
    elif options.part == "first":
        FORMATS[options.format].first(model, options.directory)
    else:
        model = FORMATS[options.format].second(model, options.directory)
    print(digest(model))
    return 0


if __name__ == "__main__":
    sys.exit(main())
