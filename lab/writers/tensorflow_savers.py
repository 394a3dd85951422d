"""What TensorFlow and Keras save variables with, and DeepFreeze over them."""

import importlib
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy

from lab.faults.state import OLDER
from lab.networks.layout import TensorSpec
from lab.writers.saver import DeepFreezeSaver, Pending, StorageSaver, Victim
from lab.writers.values import Array

KEEP = 3  # checkpoints, as in the guide; the manager has no default
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"


class Variables(StorageSaver):
    """Named variables."""

    def build(self) -> None:
        self.library: Any = importlib.import_module("tensorflow")
        self.variables = {spec.name: self.variable(spec) for spec in self.layout.tensors}

    def variable(self, spec: TensorSpec) -> Any:
        return self.library.Variable(self.library.zeros(spec.shape, spec.dtype))

    def fill(self, version: int) -> None:
        for index, spec in enumerate(self.layout.tensors):
            array = numpy.empty(spec.shape, spec.dtype)
            self.values.fill(array, index, version)
            self.variables[spec.name].assign(array)

    def contents(self) -> dict[str, Array]:
        return {name: numpy.asarray(one) for name, one in self.variables.items()}


class TensorFlow(Variables):
    """tf.train.Checkpoint."""

    def build(self) -> None:
        super().build()
        self.checkpoint = self.library.train.Checkpoint(state=self.variables)

    def prefix(self, path: Path) -> str:
        return str(path / "checkpoint")

    def write(self, path: Path) -> Pending | None:
        self.checkpoint.write(self.prefix(path))
        return None

    def read(self, path: Path) -> None:
        self.checkpoint.read(self.prefix(path)).assert_consumed()

    def read_one(self, path: Path, name: str) -> Array:
        reader = self.library.train.load_checkpoint(self.prefix(path))
        escaped = name.replace(".", "..")
        return numpy.asarray(reader.get_tensor(f"state/{escaped}/.ATTRIBUTES/VARIABLE_VALUE"))


class TensorFlowAsync(TensorFlow):
    """enable_async: returns once it has copied the variables. Keras's own it refuses."""

    def write(self, path: Path) -> Pending:
        options = self.library.train.CheckpointOptions(enable_async=True)
        self.checkpoint.write(self.prefix(path), options=options)
        return Pending(committed=self.checkpoint.sync)

    def read(self, path: Path) -> None:
        """By its restore(): the asynchronous write() stores the counter of save(), too."""
        self.checkpoint.restore(self.prefix(path)).assert_consumed()


class SavedModel(TensorFlow):
    """tf.saved_model.save of a module that holds the variables, without a function."""

    def build(self) -> None:
        super().build()
        self.module = self.library.Module()
        self.module.state = self.variables

    def prefix(self, path: Path) -> str:
        return str(path / "variables" / "variables")

    def write(self, path: Path) -> None:
        self.library.saved_model.save(self.module, str(path))

    def read(self, path: Path) -> None:
        loaded = self.library.saved_model.load(str(path))
        for name, variable in self.variables.items():
            variable.assign(loaded.state[name])


class TensorFlowManager(TensorFlow, Victim):
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
        self.bring_back(newest)
        return []

    def load_older(self, directory: Path) -> None:
        self.bring_back(str(directory / f"ckpt-{OLDER}"))

    def bring_back(self, prefix: str) -> None:
        self.checkpoint.restore(prefix).assert_consumed()


class TensorFlowManagerAsync(TensorFlowManager):
    """The same with enable_async, awaited."""

    def save(self, directory: Path, step: int) -> Pending:
        options = self.library.train.CheckpointOptions(enable_async=True)
        self.saving.save(checkpoint_number=step, options=options)
        return Pending(committed=self.checkpoint.sync)


class DeepFreezeTensorFlow(DeepFreezeSaver, Variables):
    """A dict of variables. There is nothing to attach: TensorFlow writes to no buffer again."""

    def state(self) -> dict[str, Any]:
        return self.variables


class DeepFreezeTensorFlowLatency(DeepFreezeTensorFlow):
    profile = "latency"


class DeepFreezeKeras(DeepFreezeTensorFlow):
    """Keras's variables, on TensorFlow."""

    def variable(self, spec: TensorSpec) -> Any:
        zeros = numpy.zeros(spec.shape, spec.dtype)
        return keras().Variable(zeros, dtype=spec.dtype, trainable=False)


class DeepFreezeKerasLatency(DeepFreezeKeras):
    profile = "latency"


@cache
def keras() -> Any:
    """Takes seconds: only programs that need it import it."""
    return importlib.import_module("keras")


@cache
def holder() -> Any:
    """A layer that only holds the tensors."""

    class Holder(keras().layers.Layer):  # type: ignore[misc]
        def __init__(self, shapes: list[list[Any]], **options: Any) -> None:
            super().__init__(**options)
            self.shapes = shapes
            zeros = {"initializer": "zeros", "trainable": False}
            self.tensors = [
                self.add_weight(shape=tuple(shape), dtype=dtype, **zeros) for shape, dtype in shapes
            ]

        def call(self, inputs: Any) -> Any:
            return inputs

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "shapes": self.shapes}

    return keras().saving.register_keras_serializable(package="bench")(Holder)


class KerasWeights(StorageSaver):
    """save_weights and load_weights: HDF5, of a model that only holds the tensors."""

    suffix = ".weights.h5"

    def build(self) -> None:
        inputs = keras().Input((1,))
        shapes = [[list(spec.shape), spec.dtype] for spec in self.layout.tensors]
        self.model = keras().Model(inputs, holder()(shapes, name="holder")(inputs))

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
            spec.name: keras().ops.convert_to_numpy(one)
            for spec, one in zip(specs, self.tensors(), strict=True)
        }

    def place(self, directory: Path, step: int) -> Path:
        """Its ending says in which format."""
        return directory / f"step-{step}{self.suffix}"

    def write(self, path: Path) -> None:
        self.model.save_weights(path, overwrite=True)

    def read(self, path: Path) -> None:
        self.model.load_weights(path)

    def read_one(self, path: Path, name: str) -> Array:
        h5py: Any = importlib.import_module("h5py")
        with h5py.File(path) as file:
            return numpy.asarray(file["layers/holder/vars"][str(self.layout.positions[name])])


class KerasModel(KerasWeights):
    """model.save and load_model: a zip. A restore gives a new model."""

    suffix = ".keras"

    def write(self, path: Path) -> None:
        self.model.save(path, overwrite=True)

    def read(self, path: Path) -> None:
        self.model = keras().models.load_model(path)

    def read_one(self, path: Path, name: str) -> Array:
        """By way of all others."""
        return StorageSaver.read_one(self, path, name)


class KerasLegacy(KerasModel):
    """The same to HDF5, with the model's configuration in it; Keras calls it legacy."""

    suffix = ".h5"
