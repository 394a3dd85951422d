"""Orbax, by the manager that its documentation has for training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.storage import jax_savers
from bench.storage.saver import Pending
from bench.torture.state import OLDER
from bench.torture.victim import Victim


class OrbaxManager(jax_savers.Orbax, Victim):
    """CheckpointManager with its default options, which save beside; awaited."""

    def open(self, directory: Path) -> None:
        self.checkpointer = self.library.CheckpointManager(directory)

    def save(self, directory: Path, step: int) -> Pending:
        self.checkpointer.save(step, args=self.library.args.StandardSave(self.state))
        return Pending(committed=self.checkpointer.wait_until_finished)

    def restore(self, directory: Path, step: int) -> None:
        arguments = self.library.args.StandardRestore(self.state)
        self.state = self.checkpointer.restore(step, args=arguments)
        self.jax.block_until_ready(self.state)

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
