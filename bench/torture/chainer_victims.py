"""Chainer's snapshot extension, which writes npz beside and renames it."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.storage import chainer_savers, chainer_shim
from bench.storage.saver import Pending
from bench.torture.state import OLDER
from bench.torture.victim import Victim

chainer_shim.install()
extensions: Any = importlib.import_module("chainer.training.extensions")
PREFIX = "snapshot_iter_"


class ChainerSnapshot(chainer_savers.Chainer, Victim):
    """extensions.snapshot as it is by default; loaded by its autoload."""

    def trainer(self, directory: Path, step: int) -> Any:
        """All that the extension wants of one."""
        return SimpleNamespace(out=str(directory), updater=SimpleNamespace(iteration=step))

    def place(self, directory: Path, step: int) -> Path:
        return directory / f"{PREFIX}{step}"

    def save(self, directory: Path, step: int) -> Pending:
        extensions.snapshot(target=self.link)(self.trainer(directory, step))
        return Pending()

    def load_newest(self, directory: Path) -> list[int]:
        if not any(path.name.startswith(PREFIX) for path in directory.iterdir()):
            raise LookupError("no snapshot is there")  # autoload would say nothing
        extension = extensions.snapshot(target=self.link, autoload=True)
        extension.initialize(self.trainer(directory, OLDER))
        return []

    def load_older(self, directory: Path) -> None:
        self.restore(directory, OLDER)
