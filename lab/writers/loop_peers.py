"""What people use today, each as its documentation advises for speed.

All keep the newest two checkpoints, have one save in flight at most, and delete in a thread of
their own, so that neither retention nor a pile of copies is held against them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse, async_save

from lab.measure.files import delete, sync_directory
from lab.writers.loop import KEEP_LAST, Saver, SaveRecord


class Retention:
    """Deletes, beside the training, all but the newest committed checkpoints."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "retention")
        self._kept: deque[Path] = deque()
        self._deletions: list[Future[None]] = []

    def committed(self, path: Path) -> None:
        self._kept.append(path)
        while len(self._kept) > KEEP_LAST:
            self._deletions.append(self._thread.submit(delete, self._kept.popleft()))

    def newest(self) -> Path | None:
        return self._kept[-1] if self._kept else None

    def drain(self) -> None:
        while self._deletions:
            self._deletions.pop().result()

    def close(self) -> None:
        self._thread.shutdown()


class Peer(Saver):
    """A saver with a retention of our making."""

    is_baseline = False

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        super().__init__(training, directory, every)
        self.retention = Retention()
        directory.mkdir()

    def after_step(self, step: int) -> None:
        if step % self.every != 0:
            return
        record = SaveRecord(step)
        self.records.append(record)
        began = time.perf_counter()
        self.save(record, began)
        record.call_seconds = time.perf_counter() - began

    @abstractmethod
    def save(self, record: SaveRecord, began: float) -> None:
        """Saves, or begins to; `began` is when the call was made."""

    def values(self, step: int) -> dict[str, Any]:
        """What is saved, as plain containers and the live tensors."""
        return {**self.training.state_dicts(), "step": step, "rng": torch.get_rng_state()}

    def commit(self, record: SaveRecord, began: float, path: Path, marker: Path) -> None:
        """Notes a save as committed, if what says so is there."""
        if not marker.exists():
            raise FileNotFoundError(f"{marker.name} is missing after the save")
        record.durable_seconds = time.perf_counter() - began
        record.committed = True
        self.retention.committed(path)

    def drain(self) -> None:
        self.retention.drain()

    def newest(self) -> Path | None:
        return self.retention.newest()

    def close(self) -> None:
        self.retention.close()


class TorchSave(Peer):
    """torch.save to a new name, fsync, rename, fsync of the directory."""

    name = "torch-save"
    title = "torch.save + fsync"
    synced = "all"

    def save(self, record: SaveRecord, began: float) -> None:
        path = self.directory / f"step-{record.step}.pt"
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            torch.save(self.values(record.step), file)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
        sync_directory(self.directory)
        self.commit(record, began, path, path)


class BackgroundPeer(Peer):
    """A peer whose save goes on beside the training; the next one waits for it."""

    marker: str  # the file that its library writes last

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        super().__init__(training, directory, every)
        self.completions = ThreadPoolExecutor(1, "completions")
        self.in_flight: Future[None] | None = None

    @abstractmethod
    def start(self, path: Path, record: SaveRecord) -> Callable[[], object]:
        """Begins a save; the result waits for its end and raises what went wrong."""

    def save(self, record: SaveRecord, began: float) -> None:
        self.wait()
        path = self.directory / f"step-{record.step}"
        wait = self.start(path, record)
        self.in_flight = self.completions.submit(self.complete, record, began, path, wait)

    def complete(
        self, record: SaveRecord, began: float, path: Path, wait: Callable[[], object]
    ) -> None:
        try:
            wait()
            self.commit(record, began, path, path / self.marker)
        except Exception as error:  # whatever the library raises is this save's result
            record.error = f"{type(error).__name__}: {error}"

    def wait(self) -> None:
        if self.in_flight is not None:
            self.in_flight.result()
            self.in_flight = None

    def drain(self) -> None:
        self.wait()
        super().drain()

    def close(self) -> None:
        self.completions.shutdown()
        super().close()


def new_stager(*, beside: bool) -> DefaultStager:
    """To be kept for all saves: its buffers are used again. Without what needs CUDA."""
    return DefaultStager(
        StagingOptions(
            use_pinned_memory=False,
            use_shared_memory=False,
            use_async_staging=beside,
            use_non_blocking_copy=False,
        )
    )


class DcpAsync(BackgroundPeer):
    """dcp.async_save with one stager for all saves; staged before the call returns."""

    name = "dcp-async"
    title = "dcp.async_save, stager re-used"
    synced = "files, no directory"
    marker = ".metadata"
    staged_beside = False

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        super().__init__(training, directory, every)
        self.stager = self.make_stager()

    def make_stager(self) -> DefaultStager | None:
        """For all saves; None: async_save makes one for each."""
        return new_stager(beside=self.staged_beside)

    def start(self, path: Path, record: SaveRecord) -> Callable[[], object]:
        started = async_save(
            self.values(record.step),
            storage_writer=FileSystemWriter(path),
            async_stager=self.stager,
            no_dist=True,
        )
        if isinstance(started, AsyncSaveResponse):
            self.note_staging(started.staging_completion, record)
            return started.upload_completion.result
        return started.result

    def note_staging(self, staging: Future[None], record: SaveRecord) -> None:
        raise TypeError("async_save staged asynchronously, which was not asked for")

    def close(self) -> None:
        super().close()
        if self.stager is not None:
            self.stager.close()


class StagedBeside(BackgroundPeer):
    """Staged in a thread beside forward and backward; waits before the update.

    It has no guard for what forward changes: batch-norm statistics can be of two steps.
    """

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        super().__init__(training, directory, every)
        self.staging: tuple[Future[None], SaveRecord] | None = None

    def note_staging(self, staging: Future[None], record: SaveRecord) -> None:
        self.staging = (staging, record)

    def before_update(self) -> None:
        if self.staging is None:
            return
        staging, record = self.staging
        began = time.perf_counter()
        staging.result()
        record.fence_seconds = time.perf_counter() - began
        self.staging = None


class DcpStagedBeside(StagedBeside, DcpAsync):
    """The same as DcpAsync in this way."""

    name = "dcp-staged"
    title = "dcp.async_save, staged beside"
    staged_beside = True


class TorchSnapshot(BackgroundPeer):
    """torchsnapshot.Snapshot.async_take; it syncs nothing to the device."""

    name = "torchsnapshot"
    title = "torchsnapshot.async_take"
    synced = "nothing"
    marker = ".snapshot_metadata"

    @classmethod
    def missing(cls) -> str:
        return "" if importlib.util.find_spec("torchsnapshot") else "not installed"

    def start(self, path: Path, record: SaveRecord) -> Callable[[], object]:
        torchsnapshot: Any = importlib.import_module("torchsnapshot")
        objects = {
            **self.training.state,
            "progress": torchsnapshot.StateDict(step=record.step),
            "rng": torchsnapshot.RNGState(),
        }
        pending = torchsnapshot.Snapshot.async_take(str(path), objects)
        wait: Callable[[], object] = pending.wait
        return wait


PEERS: tuple[type[Saver], ...] = (TorchSave, DcpAsync, DcpStagedBeside, TorchSnapshot)
