"""Keras's own formats, over a model that only holds the tensors."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy

from lab.networks.layout import TensorSpec
from lab.writers.saver import Pending, StorageSaver
from lab.writers.values import Array

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
keras: Any = importlib.import_module("keras")


@keras.saving.register_keras_serializable(package="bench")
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


class KerasWeights(StorageSaver):
    """save_weights and load_weights: HDF5."""

    suffix = ".weights.h5"

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

    def place(self, directory: Path, step: int) -> Path:
        """Its ending says in which format."""
        return directory / f"step-{step}{self.suffix}"

    def save(self, directory: Path, step: int) -> Pending:
        self.model.save_weights(self.place(directory, step), overwrite=True)
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        self.model.load_weights(self.place(directory, step))

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        h5py: Any = importlib.import_module("h5py")
        with h5py.File(self.place(directory, step)) as file:
            return numpy.asarray(file["layers/holder/vars"][str(self.layout.positions[name])])


class KerasModel(KerasWeights):
    """model.save and load_model: a zip. What it restores is a new model."""

    suffix = ".keras"

    def save(self, directory: Path, step: int) -> Pending:
        self.model.save(self.place(directory, step), overwrite=True)
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        self.model = keras.models.load_model(self.place(directory, step))

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        """By way of all others."""
        return StorageSaver.load_one(self, directory, step, name)


class KerasLegacy(KerasModel):
    """The same to HDF5, with the model's configuration in it; Keras calls it legacy."""

    suffix = ".h5"
