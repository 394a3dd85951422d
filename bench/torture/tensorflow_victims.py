"""TensorFlow's checkpoints by their manager, and Keras's two formats."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy

from bench.storage import tensorflow_savers
from bench.storage.layout import TensorSpec
from bench.storage.saver import Pending
from bench.storage.values import Array
from bench.torture.state import OLDER
from bench.torture.victim import OnePath, Victim

KEEP = 3  # as in the guide; the manager has no default
keras: Any = importlib.import_module("keras")


class TensorFlowManager(tensorflow_savers.TensorFlow, Victim):
    """tf.train.CheckpointManager."""

    def manager(self, directory: Path) -> Any:
        return self.library.train.CheckpointManager(self.checkpoint, str(directory), KEEP)

    def open(self, directory: Path) -> None:
        self.saving = self.manager(directory)

    def save(self, directory: Path, step: int) -> Pending:
        self.saving.save(checkpoint_number=step)
        return Pending()

    def load_newest(self, directory: Path) -> list[int]:
        newest = self.manager(directory).latest_checkpoint
        if newest is None:
            raise LookupError("the manager knows no checkpoint")
        self.read(newest)
        return []

    def load_older(self, directory: Path) -> None:
        self.read(str(directory / f"ckpt-{OLDER}"))

    def read(self, prefix: str) -> None:
        self.checkpoint.restore(prefix).assert_consumed()


@keras.saving.register_keras_serializable(package="torture")
class Holder(keras.layers.Layer):  # type: ignore[misc]
    """A layer that only holds the tensors."""

    def __init__(self, shapes: list[list[Any]], **options: Any) -> None:
        super().__init__(**options)
        self.shapes = shapes
        self.tensors = [
            self.add_weight(shape=tuple(shape), dtype=dtype, initializer="zeros", trainable=False)
            for shape, dtype in shapes
        ]

    def call(self, inputs: Any) -> Any:
        return inputs

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "shapes": self.shapes}


def model_of(specs: tuple[TensorSpec, ...]) -> Any:
    inputs = keras.Input((1,))
    shapes = [[list(spec.shape), spec.dtype] for spec in specs]
    return keras.Model(inputs, Holder(shapes, name="holder")(inputs))


class KerasWeights(OnePath):
    """save_weights and load_weights."""

    filename = "latest.weights.h5"

    def build(self) -> None:
        self.model = model_of(self.layout.tensors)

    def tensors(self) -> list[Any]:
        found: list[Any] = self.model.get_layer("holder").tensors
        return found

    def fill(self, version: int) -> None:
        for index, (spec, tensor) in enumerate(
            zip(self.layout.tensors, self.tensors(), strict=True)
        ):
            array = numpy.empty(spec.shape, spec.dtype)
            self.values.fill(array, index, version)
            tensor.assign(array)

    def contents(self) -> dict[str, Array]:
        specs = self.layout.tensors
        return {
            spec.name: keras.ops.convert_to_numpy(one)
            for spec, one in zip(specs, self.tensors(), strict=True)
        }

    def save(self, directory: Path, step: int) -> Pending:
        self.model.save_weights(self.place(directory, step), overwrite=True)
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        self.model.load_weights(self.place(directory, step))


class KerasModel(KerasWeights):
    """model.save and load_model."""

    filename = "latest.keras"

    def save(self, directory: Path, step: int) -> Pending:
        self.model.save(self.place(directory, step), overwrite=True)
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        self.model = keras.models.load_model(self.place(directory, step))
