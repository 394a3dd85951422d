"""What a training of restart.py is, and how it tells its parent about every step.

All frameworks train the same: a perceptron with batch normalisation and dropout, by SGD with
momentum and a rate that falls at each step, on rows that are shuffled anew in each epoch.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import deepfreeze as df
from lab.faults.state import fingerprint
from lab.programs.restart_job import (
    BATCHES,
    DATA,
    INTERVAL,
    KILL_STEP,
    KILLED_IN_SAVE,
    MODEL,
    OPTIMIZER,
    OTHER_ORDER,
    RNG,
    SCHEDULER,
    STEPS,
    Job,
)

Array = np.ndarray[Any, Any]
Entries = Iterable[tuple[str, Any]]

LOSS = "loss"
COMPONENTS = (DATA, RNG, SCHEDULER, OPTIMIZER, MODEL, LOSS)  # what causes comes before what follows
LAST = "last.npz"  # the state after the last step
HOLD_SECONDS_MAX = 120.0  # until the parent kills this process


class Task:
    """What all frameworks train alike."""

    BATCH, WIDTH, HIDDEN = 32, 64, 256  # wide enough that the threads share the work
    ROWS = BATCH * BATCHES
    RATE, DECAY, MOMENTUM, DROPOUT = 0.02, 0.97, 0.9, 0.2


class Writer(Protocol):
    def after_step(self, step: int) -> None:
        """Saves where one is due."""

    def settle(self) -> None:
        """Returns when all saves have ended."""

    def restore(self) -> int:
        """Brings the newest checkpoint into the training; the step that it is of."""


class Training(Protocol):
    def train_step(self) -> float:
        """On the next batch; the loss."""

    def entries(self) -> Entries:
        """All that decides how it goes on, as component/name."""

    def batch(self) -> Array:
        """The numbers of the rows that the last step was trained on."""

    def skip(self) -> None:
        """Passes one batch over."""


class Stepped:
    """A writer that saves at each interval, to a path for each step."""

    def __init__(self, training: Any, job: Job) -> None:
        self.training = training
        self.job = job

    def after_step(self, step: int) -> None:
        if step % INTERVAL == 0:
            self.save(step)

    def save(self, step: int) -> None:
        raise NotImplementedError

    def settle(self) -> None:
        """Nothing is left to do when save() returns."""

    def restore(self) -> int:
        raise NotImplementedError


class ByDeepFreeze(Stepped):
    """Of the parts that are saved: live ones that last, or a subclass gives those of each save."""

    def __init__(self, training: Any, job: Job, parts: Mapping[str, Any] | None = None) -> None:
        super().__init__(training, job)
        self.saved = {name: part for name, part in (parts or {}).items() if name in job.saved}
        every = df.every(steps=INTERVAL)
        self.checkpointer = df.Checkpointer(job.place / "run", every=every, profile="latency")

    def parts(self) -> dict[str, Any]:
        return self.saved

    def take(self, parts: dict[str, Any]) -> None:
        """The restored parts; most of them are restored in place."""

    def after_step(self, step: int) -> None:
        self.checkpointer.step(step, self.parts())

    def settle(self) -> None:
        self.checkpointer.wait()

    def restore(self) -> int:
        parts = self.parts()
        step = self.checkpointer.restore(parts)
        if step is None:
            raise LookupError("no checkpoint is there")
        self.take(parts)
        return step


class Voice:
    """The pipe to the parent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, event: str, **what: Any) -> None:
        line = json.dumps({"event": event, **what}).encode() + b"\n"
        while line:
            line = line[os.write(self._descriptor, line) :]


class Recorder:
    """Tells the digests of the state; holds the process where it is to be killed."""

    def __init__(self, job: Job, voice: Voice, entries: Callable[[], Entries]) -> None:
        self._job = job
        self._voice = voice
        self._entries = entries

    def restored(self, step: int) -> None:
        self._voice.say("restored", step=step, entries=digests(self._entries()))

    def saving(self, step: int, settle: Callable[[], object]) -> None:
        """One that is to be killed in this save has a whole one before it."""
        if step % INTERVAL == 0:
            if self._job.fault == KILLED_IN_SAVE:
                settle()
            self._voice.say("saving", step=step)

    def note(self, step: int, loss: float, batch: Any, settle: Callable[[], object]) -> None:
        """After each step; its save, if it has one, comes before."""
        more = [(f"{DATA}/batch", np.asarray(batch)), (LOSS, np.float64(loss))]
        found = [*self._entries(), *more]
        self._voice.say("step", step=step, entries=digests(found))
        if step == KILL_STEP and self._job.fault and not self._job.resumes:
            if self._job.fault != KILLED_IN_SAVE:
                settle()
                self._voice.say("holding")
            time.sleep(HOLD_SECONDS_MAX)
        if step == STEPS:
            state: dict[str, Any] = {name: np.asarray(one) for name, one in found}
            np.savez(self._job.place / LAST, **state)


def digests(entries: Entries) -> dict[str, str]:
    """By component: the first that differs is the one that made the others differ."""
    found = sorted(entries, key=lambda each: COMPONENTS.index(component(each[0])))
    return {name: fingerprint(np.asarray(value)) for name, value in found}


def component(entry: str) -> str:
    return entry.partition("/")[0]


def run_loop(job: Job, voice: Voice, training: Training, writer: Writer | None) -> None:
    """A loop of its own, as users of torch and JAX write one."""
    recorder = Recorder(job, voice, training.entries)
    done = 0
    if job.resumes and writer is not None:
        done = writer.restore()
        recorder.restored(done)
        if job.fault == OTHER_ORDER:
            training.skip()
    for step in range(done + 1, STEPS + 1):
        loss = training.train_step()
        if writer is not None:
            recorder.saving(step, writer.settle)
            writer.after_step(step)
        recorder.note(step, loss, training.batch(), writer.settle if writer else int)


def rows(seed: int) -> tuple[Array, Array]:
    """What is learnt: the same in every process of one study."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((Task.ROWS, Task.WIDTH), np.float32)
    return x, np.tanh(x[:, :1] - x[:, 1:2])


def flat(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The leaves of nested dicts and lists."""
    if isinstance(tree, Mapping):
        for name in sorted(tree, key=str):
            yield from flat(tree[name], f"{path}/{name}")
    elif isinstance(tree, (list, tuple)):
        for index, each in enumerate(tree):
            yield from flat(each, f"{path}/{index}")
    elif tree is not None:
        yield path, tree


def newest(directory: Path, pattern: str) -> tuple[int, Path]:
    """The step and path of the highest number at the end of a stem."""
    found: dict[int, Path] = {}
    for path in directory.glob(pattern):
        with suppress(ValueError):
            found[int(path.name.split(".")[0].rpartition("-")[2])] = path
    if not found:
        raise LookupError("no checkpoint is there")
    step = max(found)
    return step, found[step]
