"""Libraries for torch that come in packages of their own."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

from lab.writers.saver import Pending
from lab.writers.torch_savers import TorchSaver
from lab.writers.values import Array

AIO_BUFFER_BYTES = 64_000_000  # DeepSpeed's default, io_buffer_size
AIO_BLOCK_BYTES = 1 << 20
AIO_DEPTH = 8


class Torchsnapshot(TorchSaver):
    """Snapshot.take."""

    def build(self) -> None:
        super().build()
        self.library: Any = importlib.import_module("torchsnapshot")

    def objects(self) -> dict[str, Any]:
        return {"state": self.library.StateDict(**self.tensors)}

    def save(self, directory: Path, step: int) -> Pending:
        self.library.Snapshot.take(str(self.place(directory, step)), self.objects())
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        objects = self.objects()
        self.library.Snapshot(str(self.place(directory, step))).restore(objects)
        self.take({name: objects["state"][name] for name in self.tensors})

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        snapshot = self.library.Snapshot(str(self.place(directory, step)))
        found: Array = snapshot.read_object(f"0/state/{name}").numpy()
        return found


class TorchsnapshotAsync(Torchsnapshot):
    """Snapshot.async_take: staged before the call returns."""

    def save(self, directory: Path, step: int) -> Pending:
        place = str(self.place(directory, step))
        return Pending(committed=self.library.Snapshot.async_take(place, self.objects()).wait)


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

    def save(self, directory: Path, step: int) -> Pending:
        done = self.manager.save(str(self.place(directory, step)), {"state": self.tensors})
        return Pending() if done is None else Pending(self.wait_until_staged, done.result)

    def wait_until_staged(self) -> None:
        """As before optimizer.step(), which its documentation puts inside this lock."""
        with self.manager.lock():
            pass

    def restore(self, directory: Path, step: int) -> None:
        self.manage(sync=True)  # who only loads needs no process that saves
        place = str(self.place(directory, step))
        loaded = self.manager.load(place, into={"state": self.tensors})
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

    def save(self, directory: Path, step: int) -> Pending:
        config = self.writers.FastFileWriterConfig(self.handle, self.buffer)
        writer = self.writers.FastFileWriter(str(self.place(directory, step)), config)
        torch.save(self.tensors, writer, _use_new_zipfile_serialization=False)
        writer.close()  # syncs
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        self.take(torch.load(self.place(directory, step)))


class UtilsBuilder:
    """Stands in for DeepSpeed's extension of that name."""

    def load(self) -> UtilsBuilder:
        return self

    def cast_to_byte_tensor(self, tensors: Any) -> Any:
        if isinstance(tensors, list):
            return [self.cast_to_byte_tensor(one) for one in tensors]
        return tensors.reshape(-1).view(torch.uint8)
