"""The interface that all savers share, and DeepFreeze over any state. Imports no framework.

One process makes one saver, saves with it several times, or restores once. Under faults it is a
`Victim`: an older checkpoint, a newer one, a load of what it takes for the newest.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy

import deepfreeze as df
from lab.faults.state import NEWER, OLDER
from lab.measure.files import delete
from lab.networks.layout import Layout
from lab.writers.values import Array, Values

STEP = re.compile(r"step-(\d+)(\.weights\.h5)?")
STEPS, KEEPS_ALL = "a path a step", "keeps all"  # ways of victims; else the name of one path


def nothing() -> None:
    """There is nothing to wait for."""


class Pending:
    """One save that has been asked for; an error of its two waits is the save's failure."""

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
        """Makes the live state; its values come with fill()."""

    @abstractmethod
    def fill(self, version: int) -> None:
        """Changes the live state in place, where the framework can."""

    @abstractmethod
    def contents(self) -> dict[str, Array]:
        """The live state as NumPy arrays."""

    def open(self, directory: Path) -> None:  # noqa: B027 (most savers need nothing)
        """Sets up the parts that all saves share. Timed apart."""

    def save(self, directory: Path, step: int) -> Pending:
        """Saves as `step`, in a new place below `directory`."""
        return self.write(self.place(directory, step)) or Pending()

    def write(self, path: Path) -> Pending | None:
        """Saves to that new path; None: it is done. Unless a saver has a save() of its own."""
        raise NotImplementedError

    def place(self, directory: Path, step: int) -> Path:
        """Where step's bytes are."""
        return directory / f"step-{step}"

    def remove(self, directory: Path, step: int) -> None:
        """Deletes an old checkpoint."""
        delete(self.place(directory, step))

    def restore(self, directory: Path, step: int) -> None:
        """Brings the checkpoint into the live state."""
        self.read(self.place(directory, step))

    def read(self, path: Path) -> None:
        """Loads from that path. Unless a saver has a restore() of its own."""
        raise NotImplementedError

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        return self.read_one(self.place(directory, step), name)

    def read_one(self, path: Path, name: str) -> Array:
        """One tensor; by way of all others, unless the format can do better."""
        self.read(path)
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


class DeepFreezeSaver(StorageSaver):
    """By the eager path, unless a subclass has something attached.

    Nothing trains here. So what is attached is copied in the fence, which `captured` is, and the
    stall of both paths is the copy; they differ in what save() itself takes. What the window
    hides behind a training step, and capture after each update, is for lab/experiments/window.py.
    """

    profile: Literal["auto", "latency"] = "auto"
    checkpointer: df.Checkpointer | None = None
    keeps_all = False

    @abstractmethod
    def state(self) -> object:
        """The tree that is saved as `state`: each tensor has its own name below that."""

    def attached(self) -> Sequence[object]:
        return ()

    def arena_max(self) -> int | None:
        return None

    def agent_of(self, directory: Path) -> str | None:
        """The place of the agent that finishes a captured save of that run, if there is one."""
        return None

    def open(self, directory: Path) -> None:
        keep = None if self.keeps_all else df.keep(last=1)
        self.checkpointer = df.Checkpointer(
            directory, keep=keep, profile=self.profile, arena_bytes_max=self.arena_max(),
            agent=self.agent_of(directory),
        )  # fmt: skip
        for each in self.attached():
            self.checkpointer.attach(each)
        if not self.keeps_all:
            self.checkpointer.prewarm({"state": self.state()})

    def save(self, directory: Path, step: int) -> Pending:
        assert self.checkpointer is not None
        handle = self.checkpointer.save(step, {"state": self.state()})
        assert handle is not None
        captured = self.checkpointer.fence if self.attached() else nothing
        return Pending(captured, lambda: handle.wait("durable"))

    def place(self, directory: Path, step: int) -> Path:
        """Of the only attempt at this step."""
        return next(directory.glob(f"step-{step:012}-*"))

    def remove(self, directory: Path, step: int) -> None:
        """It does so itself."""

    def restore(self, directory: Path, step: int) -> None:
        with df.Checkpointer(directory) as checkpointer:
            checkpointer.restore({"state": self.state()}, step)

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        with df.Checkpointer(directory) as checkpointer:
            found = checkpointer.load(step, keys=[f"state.{name}"])["state"][name]
        return numpy.asarray(found)

    def close(self) -> None:
        if self.checkpointer is not None:
            self.checkpointer.close()


class Victim(StorageSaver):
    """How a saver is used over one run: an older checkpoint, a newer one, a load."""

    @abstractmethod
    def load_newest(self, directory: Path) -> list[int]:
        """Brings the checkpoint that the saver takes for the newest into the live state.

        Returns the steps that it says it passed over. Raises where it loads nothing.
        """

    def load_older(self, directory: Path) -> None:
        """Loads the older checkpoint by its own name, where it has one."""
        self.restore(directory, OLDER)


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
        matches = (STEP.fullmatch(path.name) for path in directory.iterdir())
        steps = [int(match[1]) for match in matches if match is not None]
        if not steps:
            raise LookupError("no checkpoint is there")
        self.restore(directory, max(steps))
        return []


class KeepsAll(Victim, DeepFreezeSaver):
    """DeepFreeze as it is by default, keeping every checkpoint."""

    keeps_all = True

    def load_newest(self, directory: Path) -> list[int]:
        with df.Checkpointer(directory, agent=self.agent_of(directory)) as checkpointer:
            if checkpointer.restore({"state": self.state()}) is None:
                raise LookupError("nothing was ever committed")
            report = checkpointer.last_restore
        assert report is not None
        return [step for step, _ in report.fell_back_from]


def as_victim(kind: type[StorageSaver], way: str) -> type[Victim]:
    """The saver in the way that its registry entry names; one that is a victim stays as it is."""
    if issubclass(kind, Victim):
        return kind
    ways: dict[str, Any] = {STEPS: Stepped, KEEPS_ALL: KeepsAll}
    return type(kind.__name__, (ways.get(way, OnePath), kind), {"filename": way})
