"""Orbax, and JAX arrays. They are immutable: a restored state is a new one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy

from lab.writers.saver import Pending, StorageSaver
from lab.writers.values import Array


class Arrays(StorageSaver):
    """Named arrays."""

    def build(self) -> None:
        self.jax: Any = importlib.import_module("jax")
        self.jax.config.update("jax_enable_x64", True)
        self.arrays: dict[str, Any] = {}

    def fill(self, version: int) -> None:
        for index, spec in enumerate(self.layout.tensors):
            array = numpy.empty(spec.shape, spec.dtype)
            self.values.fill(array, index, version)
            self.arrays[spec.name] = self.jax.numpy.array(array)

    def contents(self) -> dict[str, Array]:
        return {name: numpy.asarray(array) for name, array in self.arrays.items()}


class Orbax(Arrays):
    """Checkpointer over the standard handler."""

    maker = "Checkpointer"

    def build(self) -> None:
        super().build()
        self.library: Any = importlib.import_module("orbax.checkpoint")
        self.checkpointer: Any = None

    def open(self, directory: Path) -> None:
        handler = self.library.StandardCheckpointHandler()
        self.checkpointer = getattr(self.library, self.maker)(handler)

    def save(self, directory: Path, step: int) -> Pending:
        arguments = self.library.args.StandardSave(self.arrays)
        self.checkpointer.save(self.place(directory, step), args=arguments)
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        self.open(directory)
        arguments = self.library.args.StandardRestore(self.arrays)
        self.arrays = self.checkpointer.restore(self.place(directory, step), args=arguments)
        self.jax.block_until_ready(self.arrays)

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        reader = self.library.Checkpointer(self.library.PyTreeCheckpointHandler())
        wanted = self.library.RestoreArgs(restore_type=numpy.ndarray)
        arguments = self.library.args.PyTreeRestore(
            item={name: self.arrays[name]}, restore_args={name: wanted}, partial_restore=True
        )
        found: Array = reader.restore(self.place(directory, step), args=arguments)[name]
        return found

    def close(self) -> None:
        self.checkpointer.close()


class OrbaxAsync(Orbax):
    """AsyncCheckpointer: returns once the arrays are on the host, where they are."""

    maker = "AsyncCheckpointer"

    def save(self, directory: Path, step: int) -> Pending:
        super().save(directory, step)
        return Pending(committed=self.checkpointer.wait_until_finished)
