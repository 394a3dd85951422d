"""How a saver is used over one run: an older checkpoint, a newer one, a load."""

from __future__ import annotations

import re
from abc import abstractmethod
from pathlib import Path

from lab.faults.state import NEWER, OLDER
from lab.writers.saver import StorageSaver

STEP = re.compile(r"step-(\d+)(\.weights\.h5)?")


class Victim(StorageSaver):
    @abstractmethod
    def load_newest(self, directory: Path) -> list[int]:
        """Brings what the saver takes for the newest into the live state.

        Returns the steps that it says it passed over. Raises where it loads nothing.
        """

    @abstractmethod
    def load_older(self, directory: Path) -> None:
        """Loads the older checkpoint by its own name, where it has one."""


class OnePath(Victim):
    """Every save overwrites the one before."""

    filename: str

    def place(self, directory: Path, step: int) -> Path:
        return directory / self.filename

    def load_newest(self, directory: Path) -> list[int]:
        self.restore(directory, NEWER)
        return []

    def load_older(self, directory: Path) -> None:
        raise LookupError("it has no name of its own")


class Stepped(Victim):
    """A path for each step, the user's; the highest is the newest."""

    def load_newest(self, directory: Path) -> list[int]:
        self.restore(directory, newest_step(directory))
        return []

    def load_older(self, directory: Path) -> None:
        self.restore(directory, OLDER)


def newest_step(directory: Path) -> int:
    matches = (STEP.fullmatch(path.name) for path in directory.iterdir())
    steps = [int(match[1]) for match in matches if match is not None]
    if not steps:
        raise LookupError("no checkpoint is there")
    return max(steps)
