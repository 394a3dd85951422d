"""DeepFreeze and what comes with torch, over a dict of tensors."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse, async_save, save

import deepfreeze as df
from bench.e2e.files import sync_directory
from bench.e2e.peers import new_stager
from bench.storage.saver import ArraySaver, Pending
from bench.storage.values import Array

# One process alone is what is measured.
warnings.filterwarnings("ignore", message="torch.distributed is disabled")


class TorchSaver(ArraySaver):
    """Tensors and NumPy arrays over the same memory."""

    def build(self) -> None:
        super().build()
        self.tensors = {name: torch.from_numpy(array) for name, array in self.arrays.items()}

    def take(self, loaded: dict[str, Tensor]) -> None:
        for name, tensor in self.tensors.items():
            tensor.copy_(loaded[name])


class DeepFreeze(TorchSaver):
    def build(self) -> None:
        super().build()
        self.checkpointer: df.Checkpointer | None = None

    def open(self, directory: Path) -> None:
        keep = df.keep(last=1)
        self.checkpointer = df.Checkpointer(directory, keep=keep, arena_bytes_max=self.arena_max())
        self.checkpointer.prewarm({"state": self.tensors})

    def arena_max(self) -> int | None:
        return None

    def save(self, directory: Path, step: int) -> Pending:
        assert self.checkpointer is not None
        handle = self.checkpointer.save(step, {"state": self.tensors})
        assert handle is not None
        return Pending(committed=lambda: handle.wait("durable"))

    def place(self, directory: Path, step: int) -> Path:
        """Of the only attempt at this step."""
        return next(directory.glob(f"step-{step:012}-*"))

    def remove(self, directory: Path, step: int) -> None:
        """It does so itself."""

    def restore(self, directory: Path, step: int) -> None:
        with df.Checkpointer(directory) as checkpointer:
            checkpointer.restore({"state": self.tensors}, step)

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        with df.Checkpointer(directory) as checkpointer:
            found: Tensor = checkpointer.load(step, keys=[f"state.{name}"])["state"][name]
        return found.numpy()

    def close(self) -> None:
        if self.checkpointer is not None:
            self.checkpointer.close()


class DeepFreezeQuarter(DeepFreeze):
    """All streams through it: nothing is attached here, so save() waits for the disk."""

    def arena_max(self) -> int | None:
        return sum(tensor.nbytes for tensor in self.tensors.values()) // 4


class TorchSave(TorchSaver):
    def save(self, directory: Path, step: int) -> Pending:
        torch.save(self.tensors, self.place(directory, step))
        return Pending()

    def mapped(self, directory: Path, step: int) -> dict[str, Tensor]:
        """The quickest of torch.load's ways: read where it is first used."""
        found: dict[str, Tensor] = torch.load(self.place(directory, step), mmap=True)
        return found

    def restore(self, directory: Path, step: int) -> None:
        self.take(self.mapped(directory, step))

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        return self.mapped(directory, step)[name].clone().numpy()


class TorchSaveSynced(TorchSave):
    """To a new name, synced, renamed, and the name synced."""

    def save(self, directory: Path, step: int) -> Pending:
        path = self.place(directory, step)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            torch.save(self.tensors, file)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
        sync_directory(directory)
        return Pending()


class Safetensors(TorchSaver):
    def save(self, directory: Path, step: int) -> Pending:
        save_file(self.tensors, self.place(directory, step))
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        self.take(load_file(self.place(directory, step)))

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        opened: Any = safe_open
        with opened(self.place(directory, step), framework="np") as file:
            found: Array = file.get_tensor(name)
        return found


class Dcp(TorchSaver):
    """dcp.save without a process group, as are its relatives."""

    def save(self, directory: Path, step: int) -> Pending:
        writer = FileSystemWriter(self.place(directory, step))
        save(self.tensors, storage_writer=writer, no_dist=True)
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        self.load(directory, step, self.tensors)

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        wanted = {name: torch.empty_like(self.tensors[name])}
        self.load(directory, step, wanted)
        return wanted[name].numpy()

    def load(self, directory: Path, step: int, into: dict[str, Tensor]) -> None:
        reader = FileSystemReader(self.place(directory, step))
        load(into, storage_reader=reader, no_dist=True)


class DcpAsync(Dcp):
    """A new stager for every save, as without an argument."""

    def options(self) -> dict[str, Any]:
        return {}

    def save(self, directory: Path, step: int) -> Pending:
        writer = FileSystemWriter(self.place(directory, step))
        started = async_save(self.tensors, storage_writer=writer, no_dist=True, **self.options())
        if isinstance(started, AsyncSaveResponse):
            return Pending(started.staging_completion.result, started.upload_completion.result)
        return Pending(committed=started.result)


class DcpAsyncReused(DcpAsync):
    """One stager for all saves."""

    def build(self) -> None:
        super().build()
        self.stager = new_stager(beside=False)

    def options(self) -> dict[str, Any]:
        return {"async_stager": self.stager}

    def close(self) -> None:
        self.stager.close()
