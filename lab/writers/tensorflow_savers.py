"""What TensorFlow saves variables with."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy

from lab.networks.layout import TensorSpec
from lab.writers.saver import Pending, StorageSaver
from lab.writers.values import Array

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


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

    def prefix(self, directory: Path, step: int) -> str:
        return str(self.place(directory, step) / "checkpoint")

    def save(self, directory: Path, step: int) -> Pending:
        self.checkpoint.write(self.prefix(directory, step))
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        self.checkpoint.read(self.prefix(directory, step)).assert_consumed()

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        reader = self.library.train.load_checkpoint(self.prefix(directory, step))
        escaped = name.replace(".", "..")
        return numpy.asarray(reader.get_tensor(f"state/{escaped}/.ATTRIBUTES/VARIABLE_VALUE"))


class TensorFlowAsync(TensorFlow):
    """enable_async: returns once it has copied the variables. Keras's own it refuses."""

    def save(self, directory: Path, step: int) -> Pending:
        options = self.library.train.CheckpointOptions(enable_async=True)
        self.checkpoint.write(self.prefix(directory, step), options=options)
        return Pending(committed=self.checkpoint.sync)

    def restore(self, directory: Path, step: int) -> None:
        """Not read(): what the asynchronous write() stores has the counter of save(), too."""
        self.checkpoint.restore(self.prefix(directory, step)).assert_consumed()


class SavedModel(TensorFlow):
    """tf.saved_model.save of a module that holds the variables, without a function."""

    def build(self) -> None:
        super().build()
        self.module = self.library.Module()
        self.module.state = self.variables

    def prefix(self, directory: Path, step: int) -> str:
        return str(self.place(directory, step) / "variables" / "variables")

    def save(self, directory: Path, step: int) -> Pending:
        self.library.saved_model.save(self.module, str(self.place(directory, step)))
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        loaded = self.library.saved_model.load(str(self.place(directory, step)))
        for name, variable in self.variables.items():
            variable.assign(loaded.state[name])
