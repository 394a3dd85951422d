"""tf.train.Checkpoint, over variables."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy

from bench.storage.saver import Pending, StorageSaver
from bench.storage.values import Array

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


class TensorFlow(StorageSaver):
    def build(self) -> None:
        self.library: Any = importlib.import_module("tensorflow")
        self.variables: dict[str, Any] = {}
        for spec in self.layout.tensors:
            zeros = self.library.zeros(spec.shape, spec.dtype)
            self.variables[spec.name] = self.library.Variable(zeros)
        self.checkpoint = self.library.train.Checkpoint(state=self.variables)

    def fill(self, version: int) -> None:
        for index, spec in enumerate(self.layout.tensors):
            array = numpy.empty(spec.shape, spec.dtype)
            self.values.fill(array, index, version)
            self.variables[spec.name].assign(array)

    def contents(self) -> dict[str, Array]:
        return {name: numpy.asarray(one) for name, one in self.variables.items()}

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
