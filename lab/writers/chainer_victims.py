"""Chainer's serializers to one name; its snapshot extension, which writes beside and renames."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from deepfreeze import chainer_compat
from lab.faults.state import OLDER
from lab.writers import chainer_savers, framework_savers
from lab.writers.deepfreeze_victim import DeepFreezeVictim
from lab.writers.saver import Pending
from lab.writers.victim import OnePath, Victim

chainer_compat.install()
extensions: Any = importlib.import_module("chainer.training.extensions")
importlib.import_module("h5py")  # Chainer would not before it is asked for HDF5
PREFIX = "snapshot_iter_"


class DeepFreeze(DeepFreezeVictim, framework_savers.DeepFreezeChainer):
    """A link."""


class Npz(OnePath, chainer_savers.Chainer):
    """save_npz and load_npz."""

    filename = "latest.npz"


class NpzStored(OnePath, chainer_savers.ChainerStored):
    filename = "latest.npz"


class Hdf5(OnePath, chainer_savers.ChainerHdf5):
    """save_hdf5 and load_hdf5."""

    filename = "latest.h5"


class Hdf5Stored(OnePath, chainer_savers.ChainerHdf5Stored):
    filename = "latest.h5"


class ChainerSnapshot(chainer_savers.Chainer, Victim):
    """extensions.snapshot as it is by default; loaded by its autoload."""

    writer: str | None = None

    def new_extension(self) -> Any:
        if self.writer is None:
            return extensions.snapshot(target=self.link)
        writer = getattr(extensions.snapshot_writers, self.writer)()
        return extensions.snapshot(target=self.link, writer=writer)

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
        extension = extensions.snapshot(target=self.link, autoload=True)
        extension.initialize(self.trainer(directory, OLDER))
        return []

    def load_older(self, directory: Path) -> None:
        self.restore(directory, OLDER)


class SnapshotThread(ChainerSnapshot):
    writer = "ThreadWriter"


class SnapshotProcess(ChainerSnapshot):
    writer = "ProcessWriter"


class SnapshotThreadQueue(ChainerSnapshot):
    writer = "ThreadQueueWriter"


class SnapshotProcessQueue(ChainerSnapshot):
    writer = "ProcessQueueWriter"
