"""The interface that all savers share. Imports no framework.

One process makes one saver, saves with it several times, or restores once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import numpy

from lab.measure.files import delete
from lab.networks.layout import Layout
from lab.writers.values import Array, Values


def nothing() -> None:
    """There is nothing to wait for."""


class Pending:
    """One save that has been asked for; what its two waits raise is the save's failure."""

    def __init__(
        self, captured: Callable[[], object] = nothing, committed: Callable[[], object] = nothing
    ) -> None:
        self.captured = captured  # returns once the state may be changed
        self.committed = committed  # returns once the library says that it is saved


class StorageSaver(ABC):
    """Owns the live state, and saves it."""

    def __init__(self, layout: Layout, values: Values) -> None:
        self.layout = layout
        self.values = values
        self.build()

    @abstractmethod
    def build(self) -> None:
        """Makes the live state; what it holds comes with fill()."""

    @abstractmethod
    def fill(self, version: int) -> None:
        """Changes the live state in place, where the framework can."""

    @abstractmethod
    def contents(self) -> dict[str, Array]:
        """The live state as NumPy arrays."""

    def open(self, directory: Path) -> None:  # noqa: B027 (most savers need nothing)
        """Sets up what all saves share. Timed apart."""

    @abstractmethod
    def save(self, directory: Path, step: int) -> Pending:
        """Saves as `step`, in a new place below `directory`."""

    def place(self, directory: Path, step: int) -> Path:
        """Where step's bytes are."""
        return directory / f"step-{step}"

    def remove(self, directory: Path, step: int) -> None:
        """Deletes an old checkpoint."""
        delete(self.place(directory, step))

    @abstractmethod
    def restore(self, directory: Path, step: int) -> None:
        """Brings the checkpoint into the live state."""

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        """One tensor; by way of all others, unless the format can do better."""
        self.restore(directory, step)
        return self.contents()[name]

    def close(self) -> None:  # noqa: B027 (most savers need nothing)
        """Gives back threads, processes and memory."""


class ArraySaver(StorageSaver):
    """A state whose memory NumPy can see: filled in place."""

    arrays: dict[str, Array]

    def build(self) -> None:
        self.arrays = {
            spec.name: numpy.empty(spec.shape, spec.dtype) for spec in self.layout.tensors
        }

    def fill(self, version: int) -> None:
        for index, spec in enumerate(self.layout.tensors):
            self.values.fill(self.arrays[spec.name], index, version)

    def contents(self) -> dict[str, Array]:
        return self.arrays
