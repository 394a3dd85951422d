"""Orbax, by the manager that its documentation has for training; and without it, to one path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.faults.state import OLDER
from lab.writers import framework_savers, jax_savers
from lab.writers.deepfreeze_victim import DeepFreezeVictim
from lab.writers.saver import Pending
from lab.writers.victim import OnePath, Victim


class DeepFreeze(DeepFreezeVictim, framework_savers.DeepFreezeJax):
    """A dict of arrays."""


class OrbaxForced(OnePath, jax_savers.Orbax):
    """A checkpointer told to replace what is there."""

    filename = "latest"

    def save(self, directory: Path, step: int) -> Pending:
        arguments = self.library.args.StandardSave(self.arrays)
        self.checkpointer.save(self.place(directory, step), args=arguments, force=True)
        return Pending()


class OrbaxManager(jax_savers.Orbax, Victim):
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
        self.restore(directory, OLDER)

    def close(self) -> None:
        if self.checkpointer is not None:
            self.checkpointer.close()
