"""The libraries that people use today, beside a training: the registry's savers, tuned for speed.

All keep the newest two checkpoints, have one save in flight at most, and delete in a thread of
their own, so that neither retention nor a pile of copies is held against them.
"""

import importlib.util
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import torch

from lab.measure.files import delete
from lab.networks.layout import Layout
from lab.writers import torch_savers
from lab.writers.loop import KEEP_LAST, Saver, SaveRecord
from lab.writers.saver import Pending, StorageSaver, nothing
from lab.writers.values import Values

LIVE = Layout("live", "of a training", ())


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
    """A saver of the registry, given the state of a training. The next save waits for this one."""

    is_baseline = False
    kind: ClassVar[type[StorageSaver]]
    marker = ""  # below the checkpoint, the file that its library writes last
    beside = False  # commits beside the training, else before save() returns

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        super().__init__(training, directory, every)
        directory.mkdir()
        self.retention = Retention()
        self.completions = ThreadPoolExecutor(1, "completions")
        self.in_flight: Future[None] | None = None
        self.staging: tuple[Pending, SaveRecord] | None = None
        self.writer: Any = self.make_writer()

    def make_writer(self) -> StorageSaver | None:
        made = self.kind(LIVE, Values(0))
        made.open(self.directory.absolute())
        return made

    def live(self, step: int) -> None:
        """Gives the writer the state to save."""
        self.writer.tensors = self.values(step)

    def values(self, step: int) -> dict[str, Any]:
        return self.values_of(self.training, step)

    def values_of(self, training: Any, step: int) -> dict[str, Any]:
        """As plain containers and the live tensors."""
        return {**training.state_dicts(), "step": step, "rng": torch.get_rng_state()}

    def after_step(self, step: int) -> None:
        if step % self.every != 0:
            return
        record = SaveRecord(step)
        self.records.append(record)
        began = time.perf_counter()
        self.save(record, began)
        record.call_seconds = time.perf_counter() - began

    def save(self, record: SaveRecord, began: float) -> None:
        """Saves, or begins to; `began` is when the call was made."""
        self.wait()
        path, pending = self.start(record)
        if pending.captured is not nothing:
            self.staging = (pending, record)
        if self.beside:
            self.in_flight = self.completions.submit(self.complete, record, began, path, pending)
        else:
            pending.committed()
            self.commit(record, began, path)

    def start(self, record: SaveRecord) -> tuple[Path, Pending]:
        self.live(record.step)
        directory = self.directory.absolute()
        pending = self.writer.save(directory, record.step)
        return self.writer.place(directory, record.step), pending

    def complete(self, record: SaveRecord, began: float, path: Path, pending: Pending) -> None:
        try:
            pending.captured()
            self.note_captured(record, began)
            pending.committed()
            self.commit(record, began, path)
        except Exception as error:  # whatever the library raises is this save's result
            record.error = f"{type(error).__name__}: {error}"

    def note_captured(self, record: SaveRecord, began: float) -> None:
        """The state may change: said in the thread that waits for it."""

    def commit(self, record: SaveRecord, began: float, path: Path) -> None:
        """Notes a save as committed, if its mark is there."""
        if not (path / self.marker).exists():
            raise FileNotFoundError(f"{self.marker or path.name} is missing after the save")
        record.durable_seconds = time.perf_counter() - began
        record.committed = True
        self.retention.committed(path)

    def before_update(self) -> None:
        if self.staging is None:
            return
        pending, record = self.staging
        began = time.perf_counter()
        pending.captured()
        record.fence_seconds = time.perf_counter() - began
        self.staging = None

    def wait(self) -> None:
        if self.in_flight is not None:
            self.in_flight.result()
            self.in_flight = None

    def drain(self) -> None:
        self.wait()
        self.retention.drain()

    def newest(self) -> Path | None:
        return self.retention.newest()

    def close(self) -> None:
        self.completions.shutdown()
        self.retention.close()
        if self.writer is not None:
            self.writer.close()

    def newest_saved(self) -> Path:
        newest = self.newest()
        if newest is None:
            raise LookupError("no checkpoint is there")
        return newest


class TorchSave(Peer):
    """torch.save to a new name, fsync, rename, fsync of the directory."""

    name = "torch-save"
    title = "torch.save + fsync"
    synced = "all"
    kind = torch_savers.TorchSaveSynced

    def restore(self, training: Any) -> None:
        training.load_state_dicts(self.loaded())

    def loaded(self) -> dict[str, Any]:
        """Not mapped: an optimizer keeps the tensors that it is given, which nobody has read."""
        found: dict[str, Any] = torch.load(self.newest_saved())
        return found


class DcpSave(Peer):
    """dcp.save, which returns when all is written."""

    name = "dcp-save"
    title = "dcp.save"
    synced = "files, no directory"
    kind: ClassVar[type[StorageSaver]] = torch_savers.Dcp
    marker = ".metadata"

    def restore(self, training: Any) -> None:
        """Into tensors that are there, as it loads."""
        values = self.values_of(training, 0)
        self.writer.load(self.newest_saved(), values)
        training.load_state_dicts(values)


class DcpAsync(DcpSave):
    """dcp.async_save with one stager for all saves; staged before the call returns."""

    name = "dcp-async"
    title = "dcp.async_save, stager re-used"
    kind: ClassVar[type[StorageSaver]] = torch_savers.DcpAsyncReused
    beside = True


class DcpStagedBeside(DcpAsync):
    """Staged in a thread beside forward and backward; waits before the update.

    It has no guard for what forward changes: batch-norm statistics can be of two steps.
    """

    name = "dcp-staged"
    title = "dcp.async_save, staged beside"
    kind = torch_savers.DcpAsyncBeside


class TorchSnapshot(Peer):
    """torchsnapshot.Snapshot.async_take; it syncs nothing to the device."""

    name = "torchsnapshot"
    title = "torchsnapshot.async_take"
    synced = "nothing"
    kind = torch_savers.TorchsnapshotAsync
    marker = ".snapshot_metadata"
    beside = True

    @classmethod
    def missing(cls) -> str:
        return "" if importlib.util.find_spec("torchsnapshot") else "not installed"

    def live(self, step: int) -> None:
        library = self.writer.library
        progress, rng = library.StateDict(step=step), library.RNGState()
        self.writer.taken = {**self.training.state, "progress": progress, "rng": rng}


PEERS: tuple[type[Saver], ...] = (TorchSave, DcpAsync, DcpStagedBeside, TorchSnapshot)
