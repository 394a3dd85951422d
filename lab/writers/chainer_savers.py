"""The savers of a link of Chainer: npz, HDF5, its snapshots and their writers; DeepFreeze."""

import functools
import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy

from deepfreeze import chainer_compat
from lab.faults.state import OLDER
from lab.writers.saver import ArraySaver, DeepFreezeSaver, Pending, Victim
from lab.writers.values import Array

PREFIX = "snapshot_iter_"


class ChainerStored(ArraySaver):
    """save_npz(compression=False)."""

    compression = False

    def build(self) -> None:
        super().build()
        chainer_compat.install()
        self.chainer: Any = importlib.import_module("chainer")
        self.serializers: Any = importlib.import_module("chainer.serializers")
        self.link = self.chainer.Link()
        with self.link.init_scope():
            for name, array in self.arrays.items():
                if array.dtype == numpy.float32:
                    setattr(self.link, name, self.chainer.Parameter(array))
        for name, array in self.arrays.items():
            if array.dtype != numpy.float32:
                self.link.add_persistent(name, array)

    def write(self, path: Path) -> None:
        self.serializers.save_npz(str(path), self.link, compression=self.compression)

    def read(self, path: Path) -> None:
        self.serializers.load_npz(str(path), self.link)

    def read_one(self, path: Path, name: str) -> Array:
        with numpy.load(path) as file:
            found: Array = file[name]
        return found


class Chainer(ChainerStored):
    """save_npz as it is by default: deflated."""

    compression = True


class ChainerHdf5(ChainerStored):
    """save_hdf5 as it is by default: in chunks, gzip 4."""

    gzip: int | None = 4

    def write(self, path: Path) -> None:
        self.serializers.save_hdf5(str(path), self.link, compression=self.gzip)

    def read(self, path: Path) -> None:
        self.serializers.load_hdf5(str(path), self.link)

    def read_one(self, path: Path, name: str) -> Array:
        h5py: Any = importlib.import_module("h5py")
        with h5py.File(path) as file:
            return numpy.asarray(file[name])


class ChainerHdf5Stored(ChainerHdf5):
    """compression=None; with 0 it would write chunks, and more than the state."""

    gzip = None


class ChainerSimpleWriter(ChainerStored):
    """What extensions.snapshot() writes with by default: to a name beside, then moved.

    All writers are given the link's own arrays, and write npz that is not compressed.
    """

    writer = "SimpleWriter"

    def new_writer(self) -> Any:
        extensions: Any = importlib.import_module("chainer.training.extensions")
        kind = getattr(extensions.snapshot_writers, self.writer)
        return kind(savefun=functools.partial(self.serializers.save_npz, compression=False))

    def hand_to(self, writer: Any, directory: Path, step: int) -> None:
        arrays = self.serializers.npz.serialize(self.link)
        writer(self.place(directory, step).name, str(directory), arrays)

    def save(self, directory: Path, step: int) -> Pending:
        """By a writer of its own: after finalize(), which waits, one would never wait again."""
        writer = self.new_writer()
        self.hand_to(writer, directory, step)
        return Pending(committed=writer.finalize)


class ChainerThreadWriter(ChainerSimpleWriter):
    """Training goes on at once, and changes the arrays that the thread writes."""

    writer = "ThreadWriter"


class ChainerProcessWriter(ChainerSimpleWriter):
    """A forked process has the arrays as they were."""

    writer = "ProcessWriter"


class ChainerThreadQueueWriter(ChainerSimpleWriter):
    """One thread for all saves, and the same arrays as ThreadWriter's."""

    writer = "ThreadQueueWriter"
    queue: Any = None

    def open(self, directory: Path) -> None:
        self.queue = self.new_writer()

    def save(self, directory: Path, step: int) -> Pending:
        self.hand_to(self.queue, directory, step)
        return Pending(committed=self.queue._queue.join)

    def close(self) -> None:
        if self.queue is not None:
            self.queue.finalize()


class ChainerProcessQueueWriter(ChainerThreadQueueWriter):
    """One process for all saves; a thread pickles the arrays for it while training goes on."""

    writer = "ProcessQueueWriter"


class ChainerSnapshot(Chainer, Victim):
    """extensions.snapshot as it is by default; loaded by its autoload."""

    writer: str | None = None

    def build(self) -> None:
        super().build()
        self.extensions: Any = importlib.import_module("chainer.training.extensions")

    def new_extension(self) -> Any:
        if self.writer is None:
            return self.extensions.snapshot(target=self.link)
        writer = getattr(self.extensions.snapshot_writers, self.writer)()
        return self.extensions.snapshot(target=self.link, writer=writer)

    def trainer(self, directory: Path, step: int) -> Any:
        """All that the extension wants of one."""
        return SimpleNamespace(out=str(directory), updater=SimpleNamespace(iteration=step))

    def place(self, directory: Path, step: int) -> Path:
        return directory / f"{PREFIX}{step}"

    def save(self, directory: Path, step: int) -> Pending:
        """A new extension each time: its finalize() is all there is to wait for."""
        extension = self.new_extension()
        extension(self.trainer(directory, step))
        return Pending(committed=extension.finalize)

    def load_newest(self, directory: Path) -> list[int]:
        if not any(path.name.startswith(PREFIX) for path in directory.iterdir()):
            raise LookupError("no snapshot is there")  # autoload would say nothing
        extension = self.extensions.snapshot(target=self.link, autoload=True)
        extension.initialize(self.trainer(directory, OLDER))
        return []


class SnapshotThread(ChainerSnapshot):
    writer = "ThreadWriter"


class SnapshotProcess(ChainerSnapshot):
    writer = "ProcessWriter"


class SnapshotThreadQueue(ChainerSnapshot):
    writer = "ThreadQueueWriter"


class SnapshotProcessQueue(ChainerSnapshot):
    writer = "ProcessQueueWriter"


class DeepFreezeChainer(DeepFreezeSaver, ChainerStored):
    """A link. Nothing is attached: save() copies."""

    def state(self) -> Any:
        return self.link


class DeepFreezeChainerLatency(DeepFreezeChainer):
    """The link's optimizer is attached: in the window, with no training beside it."""

    profile = "latency"

    def build(self) -> None:
        super().build()
        self.optimizer = self.chainer.optimizers.SGD().setup(self.link)

    def attached(self) -> list[Any]:
        return [self.optimizer]
