"""Orbax and DeepFreeze over JAX arrays. They are immutable: a restored state is a new one."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy

from lab.writers.saver import DeepFreezeSaver, Pending, StorageSaver, Victim
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
    options: Mapping[str, Any] = MappingProxyType({})  # of save()

    def build(self) -> None:
        super().build()
        self.library: Any = importlib.import_module("orbax.checkpoint")
        self.checkpointer: Any = None

    def open(self, directory: Path) -> None:
        handler = self.library.StandardCheckpointHandler()
        self.checkpointer = getattr(self.library, self.maker)(handler)

    def write(self, path: Path) -> Pending | None:
        arguments = self.library.args.StandardSave(self.arrays)
        self.checkpointer.save(path, args=arguments, **self.options)
        return None

    def read(self, path: Path) -> None:
        self.open(path.parent)
        arguments = self.library.args.StandardRestore(self.arrays)
        self.arrays = self.checkpointer.restore(path, args=arguments)
        self.jax.block_until_ready(self.arrays)

    def read_one(self, path: Path, name: str) -> Array:
        reader = self.library.Checkpointer(self.library.PyTreeCheckpointHandler())
        wanted = self.library.RestoreArgs(restore_type=numpy.ndarray)
        arguments = self.library.args.PyTreeRestore(
            item={name: self.arrays[name]}, restore_args={name: wanted}, partial_restore=True
        )
        found: Array = reader.restore(path, args=arguments)[name]
        return found

    def close(self) -> None:
        self.checkpointer.close()


class OrbaxAsync(Orbax):
    """AsyncCheckpointer: returns once the arrays are on the host, where they are."""

    maker = "AsyncCheckpointer"

    def write(self, path: Path) -> Pending:
        super().write(path)
        return Pending(committed=self.checkpointer.wait_until_finished)


class OrbaxForced(Orbax):
    """A checkpointer that is told to replace the existing files."""

    options = MappingProxyType({"force": True})


class OrbaxManager(Orbax, Victim):
    """CheckpointManager with its default options, which save beside; awaited."""

    def open(self, directory: Path) -> None:
        self.checkpointer = self.library.CheckpointManager(directory)

    def save(self, directory: Path, step: int) -> Pending:
        self.checkpointer.save(step, args=self.library.args.StandardSave(self.arrays))
        return Pending(committed=self.checkpointer.wait_until_finished)

    def restore(self, directory: Path, step: int) -> None:
        arguments = self.library.args.StandardRestore(self.arrays)
        self.arrays = self.checkpointer.restore(step, args=arguments)
        self.jax.block_until_ready(self.arrays)

    def load_newest(self, directory: Path) -> list[int]:
        self.open(directory)
        newest: Any = self.checkpointer.latest_step()
        if newest is None:
            raise LookupError("the manager knows no step")
        self.restore(directory, newest)
        return []

    def load_older(self, directory: Path) -> None:
        self.open(directory)
        super().load_older(directory)

    def close(self) -> None:
        if self.checkpointer is not None:
            self.checkpointer.close()


class OrbaxTree(Orbax):
    """By the handler of trees, which takes a dot in a name for a directory."""

    how: Mapping[str, Any] = MappingProxyType({})

    def named(self) -> dict[str, Any]:
        return self.arrays

    def open(self, directory: Path) -> None:
        handler = self.library.PyTreeCheckpointHandler(**self.how)
        self.checkpointer = getattr(self.library, self.maker)(handler)

    def write(self, path: Path) -> Pending | None:
        arguments = self.library.args.PyTreeSave(self.named())
        self.checkpointer.save(path, args=arguments)
        return None


class OrbaxTreeAsync(OrbaxAsync, OrbaxTree):
    how = MappingProxyType({"use_ocdbt": True})


class OrbaxFilesAsync(OrbaxTreeAsync):
    """A file for each array."""

    how = MappingProxyType({"use_ocdbt": False})


class OrbaxPlain(OrbaxTree):
    """Without compression, in one OCDBT store: its files hold the numbers themselves."""

    how = MappingProxyType({"use_compression": False, "use_ocdbt": True})

    def named(self) -> dict[str, Any]:
        return {name.replace(".", "-"): array for name, array in self.arrays.items()}

    def read(self, path: Path) -> None:
        self.open(path.parent)
        arguments = self.library.args.PyTreeRestore(self.named())
        found = self.checkpointer.restore(path, args=arguments)
        self.arrays = {name: found[name.replace(".", "-")] for name in self.arrays}
        self.jax.block_until_ready(self.arrays)


class OrbaxZarrPlain(OrbaxPlain):
    """A directory for each array."""

    how = MappingProxyType({"use_compression": False, "use_ocdbt": False})


class DeepFreezeJax(DeepFreezeSaver, Arrays):
    """A dict of arrays. Nothing is to be attached: JAX writes to no array again."""

    def state(self) -> dict[str, Any]:
        return self.arrays


class DeepFreezeJaxLatency(DeepFreezeJax):
    profile = "latency"
