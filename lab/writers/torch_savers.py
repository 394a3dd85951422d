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
from torch.nn import Parameter

from lab.measure.files import sync_directory
from lab.writers.deepfreeze_saver import DeepFreezeSaver
from lab.writers.loop_peers import new_stager
from lab.writers.saver import ArraySaver, Pending
from lab.writers.values import Array

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


class DeepFreeze(DeepFreezeSaver, TorchSaver):
    def state(self) -> dict[str, Tensor]:
        return self.tensors


class DeepFreezeQuarter(DeepFreeze):
    """All streams through it: nothing is attached here, so save() waits for the disk."""

    def arena_max(self) -> int | None:
        return sum(tensor.nbytes for tensor in self.tensors.values()) // 4


class DeepFreezeLatency(DeepFreeze):
    """An optimizer over the tensors is attached: in the window, with no training beside it."""

    profile = "latency"

    def build(self) -> None:
        super().build()
        parameters = [Parameter(one, requires_grad=False) for one in self.tensors.values()]
        self.tensors = dict(zip(self.tensors, parameters, strict=True))
        self.optimizer = torch.optim.SGD(parameters)

    def attached(self) -> list[torch.optim.Optimizer]:
        return [self.optimizer]


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


class TorchSaveLegacy(TorchSaver):
    """The format before zip files: one pickle after another, which nothing can map."""

    def save(self, directory: Path, step: int) -> Pending:
        place = self.place(directory, step)
        torch.save(self.tensors, place, _use_new_zipfile_serialization=False)
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        self.take(torch.load(self.place(directory, step)))


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
