"""DeepFreeze, torch's own savers, and libraries for torch, over a dict of tensors."""

from __future__ import annotations

import importlib
import os
import warnings
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse, async_save, save
from torch.nn import Parameter

import deepfreeze as df
from lab.measure.files import agent_place, sync_directory
from lab.writers.saver import ArraySaver, DeepFreezeSaver, Pending
from lab.writers.values import Array

AIO_BUFFER_BYTES = 64_000_000  # DeepSpeed's default, io_buffer_size
AIO_BLOCK_BYTES = 1 << 20
AIO_DEPTH = 8

# The measurement is of one process alone.
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


class DeepFreezeAgent(DeepFreeze):
    """With an agent beside the run."""

    def agent_of(self, directory: Path) -> str:
        return str(agent_place(directory))

    def save(self, directory: Path, step: int) -> Pending:
        assert self.checkpointer is not None
        handle = self.checkpointer.save(step, {"state": self.state()})
        assert handle is not None
        return Pending(lambda: handle.wait("captured"), lambda: handle.wait("durable"))


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
    def write(self, path: Path) -> Pending | None:
        torch.save(self.tensors, path)
        return None

    def mapped(self, path: Path) -> dict[str, Tensor]:
        """The quickest of torch.load's ways: read where it is first used."""
        found: dict[str, Tensor] = torch.load(path, mmap=True)
        return found

    def read(self, path: Path) -> None:
        self.take(self.mapped(path))

    def read_one(self, path: Path, name: str) -> Array:
        return self.mapped(path)[name].clone().numpy()


class TorchSaveSynced(TorchSave):
    """To a new name, synced, renamed, and the name synced."""

    def write(self, path: Path) -> None:
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            torch.save(self.tensors, file)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
        sync_directory(path.parent)


class TorchSaveWhole(TorchSave):
    """torch.load as the tutorials have it, which is not the mapped way that is measured."""

    def read(self, path: Path) -> None:
        self.take(torch.load(path))


class TorchSaveRenamed(TorchSaveWhole):
    """To another name, then over the one before."""

    def write(self, path: Path) -> None:
        part = path.with_suffix(".part")
        torch.save(self.tensors, part)
        os.replace(part, path)


class TorchSaveSyncedWhole(TorchSaveWhole, TorchSaveSynced):
    """The same with both syncs, as a careful user writes it."""


class TorchSaveLegacy(TorchSaver):
    """The format before zip files: one pickle after another, which nothing can map."""

    def write(self, path: Path) -> None:
        torch.save(self.tensors, path, _use_new_zipfile_serialization=False)

    def read(self, path: Path) -> None:
        self.take(torch.load(path))


class Safetensors(TorchSaver):
    def write(self, path: Path) -> None:
        save_file(self.tensors, path)

    def read(self, path: Path) -> None:
        self.take(load_file(path))

    def read_one(self, path: Path, name: str) -> Array:
        opened: Any = safe_open
        with opened(path, framework="np") as file:
            found: Array = file.get_tensor(name)
        return found


class Dcp(TorchSaver):
    """dcp.save without a process group, as are its relatives."""

    def write(self, path: Path) -> Pending | None:
        save(self.tensors, storage_writer=FileSystemWriter(path), no_dist=True)
        return None

    def read(self, path: Path) -> None:
        self.load(path, self.tensors)

    def read_one(self, path: Path, name: str) -> Array:
        wanted = {name: torch.empty_like(self.tensors[name])}
        self.load(path, wanted)
        return wanted[name].numpy()

    def load(self, path: Path, into: dict[str, Tensor]) -> None:
        load(into, storage_reader=FileSystemReader(path), no_dist=True)


class DcpAsync(Dcp):
    """A new stager for every save, as without an argument."""

    def options(self) -> dict[str, Any]:
        return {}

    def write(self, path: Path) -> Pending:
        writer = FileSystemWriter(path)
        started = async_save(self.tensors, storage_writer=writer, no_dist=True, **self.options())
        if isinstance(started, AsyncSaveResponse):
            return Pending(started.staging_completion.result, started.upload_completion.result)
        return Pending(committed=started.result)


def new_stager(*, beside: bool) -> DefaultStager:
    """To be kept for all saves: its buffers are used again. Without the parts that need CUDA."""
    return DefaultStager(
        StagingOptions(
            use_pinned_memory=False, use_shared_memory=False, use_async_staging=beside,
            use_non_blocking_copy=False,
        )
    )  # fmt: skip


class DcpAsyncReused(DcpAsync):
    """One stager for all saves."""

    beside = False

    def build(self) -> None:
        super().build()
        self.stager = self.make_stager()

    def make_stager(self) -> DefaultStager:
        return new_stager(beside=self.beside)

    def options(self) -> dict[str, Any]:
        return {"async_stager": self.stager}

    def close(self) -> None:
        self.stager.close()


class DcpAsyncBeside(DcpAsyncReused):
    """Staged in a thread of its own: training waits for that before it updates."""

    beside = True


class Torchsnapshot(TorchSaver):
    """Snapshot.take."""

    taken: dict[str, Any] | None = None  # of a training, in place of the tensors

    def build(self) -> None:
        super().build()
        self.library: Any = importlib.import_module("torchsnapshot")

    def objects(self) -> dict[str, Any]:
        return self.taken or {"state": self.library.StateDict(**self.tensors)}

    def write(self, path: Path) -> Pending | None:
        self.library.Snapshot.take(str(path), self.objects())
        return None

    def read(self, path: Path) -> None:
        objects = self.objects()
        self.library.Snapshot(str(path)).restore(objects)
        self.take({name: objects["state"][name] for name in self.tensors})

    def read_one(self, path: Path, name: str) -> Array:
        snapshot = self.library.Snapshot(str(path))
        found: Array = snapshot.read_object(f"0/state/{name}").numpy()
        return found


class TorchsnapshotAsync(Torchsnapshot):
    """Snapshot.async_take: staged before the call returns."""

    def write(self, path: Path) -> Pending:
        taking = self.library.Snapshot.async_take(str(path), self.objects())
        return Pending(committed=taking.wait)


class TorchCheckpointing(TorchSaver):
    """meta-pytorch/torch_checkpointing, saving beside in a process of its own."""

    sync = False
    direct_io = False  # with it, 0.1.1 fails wherever unaligned direct writes do

    def build(self) -> None:
        super().build()
        self.manager: Any = None

    def open(self, directory: Path) -> None:
        self.manage(sync=self.sync)

    def manage(self, *, sync: bool) -> None:
        managers = importlib.import_module("torch_checkpointing.checkpoint_manager")
        files = importlib.import_module("torch_checkpointing.storage.filesystem")
        make = managers.CheckpointManager.Config
        config = make.with_sync_save() if sync else make.with_async_save()
        config.storage_config = files.LocalFileSystemStorageConfig(use_direct_io=self.direct_io)
        self.manager = config.build()

    def write(self, path: Path) -> Pending:
        done = self.manager.save(str(path), {"state": self.tensors})
        return Pending() if done is None else Pending(self.wait_until_staged, done.result)

    def wait_until_staged(self) -> None:
        """As before optimizer.step(), which its documentation puts inside this lock."""
        with self.manager.lock():
            pass

    def read(self, path: Path) -> None:
        self.manage(sync=True)  # a process that only loads needs none that saves
        loaded = self.manager.load(str(path), into={"state": self.tensors})
        self.take(loaded["state"])

    def close(self) -> None:
        if self.manager is not None:
            self.manager.close()


class TorchCheckpointingSync(TorchCheckpointing):
    sync = True


class TorchCheckpointingDefault(TorchCheckpointing):
    """As it is without a word of configuration."""

    direct_io = True


class FastPersist(TorchSaver):
    """DeepSpeed's FastFileWriter: aligned direct writes by libaio from two halves of a buffer."""

    def open(self, directory: Path) -> None:
        builders = importlib.import_module("deepspeed.ops.op_builder")
        self.writers: Any = importlib.import_module("deepspeed.io.fast_file_writer")
        # Its own is "not implemented on CPU backend"; this does the same.
        setattr(self.writers, "UtilsBuilder", UtilsBuilder)  # noqa: B010 (no member of a module)
        self.handle = (
            builders.AsyncIOBuilder()
            .load()
            .aio_handle(
                block_size=AIO_BLOCK_BYTES,
                queue_depth=AIO_DEPTH,
                single_submit=False,
                overlap_events=True,
                intra_op_parallelism=1,
            )
        )
        # DeepSpeed pins it by CUDA, which is not here.
        kind = torch.empty(0, dtype=torch.uint8)
        self.buffer = self.handle.new_cpu_locked_tensor(AIO_BUFFER_BYTES, kind)

    def write(self, path: Path) -> None:
        config = self.writers.FastFileWriterConfig(self.handle, self.buffer)
        writer = self.writers.FastFileWriter(str(path), config)
        torch.save(self.tensors, writer, _use_new_zipfile_serialization=False)
        writer.close()  # syncs

    def read(self, path: Path) -> None:
        self.take(torch.load(path))


class UtilsBuilder:
    """Stands in for DeepSpeed's extension of that name."""

    def load(self) -> UtilsBuilder:
        return self

    def cast_to_byte_tensor(self, tensors: Any) -> Any:
        if isinstance(tensors, list):
            return [self.cast_to_byte_tensor(one) for one in tensors]
        return tensors.reshape(-1).view(torch.uint8)


# Savers that only the tearing experiment has: further ways to attach, and a careless thread.


EVERY = 1 << 20  # steps: no second save comes


class TorchSaveThread(TorchSave):
    """A way that many programs use: torch.save of the live tensors in a thread, without a copy."""

    def write(self, path: Path) -> Pending:
        thread = Thread(target=torch.save, args=(self.tensors, path))
        thread.start()
        return Pending(committed=thread.join)


class DeepFreezeAfterUpdate(DeepFreezeLatency):
    """Each parameter has an optimizer, which steps in backward and is captured after that."""

    asked = 3  # the value of every number after the step that is saved

    def build(self) -> None:
        super().build()
        self.optimizers = []
        for parameter in self.tensors.values():
            parameter.requires_grad_()
            optimizer = torch.optim.SGD([parameter], 1.0)
            self.optimizers.append(optimizer)
            parameter.register_post_accumulate_grad_hook(stepping(optimizer))

    def open(self, directory: Path) -> None:
        self.checkpointer = df.Checkpointer(directory, every=df.every(steps=EVERY))
        for optimizer in self.optimizers:
            self.checkpointer.attach(optimizer, mode="after_update")

    def backward(self) -> None:
        """Every gradient is -1, and so every step adds 1."""
        total: Any = sum(parameter.sum() for parameter in self.tensors.values())
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        (-total).backward()

    def save(self, directory: Path, step: int) -> Pending:
        """Two more steps: the save is that of the second, and known before it begins."""
        assert self.checkpointer is not None
        self.backward()
        self.checkpointer.step(EVERY - 1, {"state": self.state()})
        self.backward()
        handle = self.checkpointer.step(EVERY, {"state": self.state()})
        assert handle is not None
        return Pending(committed=lambda: handle.wait("durable"))

    def restore(self, directory: Path, step: int) -> None:
        super().restore(directory, EVERY)

    def contents(self) -> dict[str, Any]:
        return {name: tensor.detach().numpy() for name, tensor in self.tensors.items()}


def stepping(optimizer: torch.optim.Optimizer) -> Any:
    def hook(_: Tensor) -> None:
        optimizer.step()

    return hook
