"""Interleaved rounds: every saver trains for one segment in each round, in a shuffled order."""

import ctypes
import gc
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import torch

from lab.measure.files import files_in, sync_directory
from lab.measure.usage import written_bytes
from lab.writers.loop import Saver, SaveRecord

WARM_UP_STEPS_MIN = 2
COPY_PASSES = 5

Progress = Callable[[int], None]


class Training(Protocol):
    """What is trained in one segment, in whatever framework."""

    def train_step(self, step: int, hooks: Any) -> float:
        """One update, done when it returns; the loss. Tells `hooks`, a saver, where it is."""

    def tensors(self) -> Sequence[Any]:
        """All of the state, as torch's tensors or NumPy's arrays."""

    def release(self) -> None:
        """It trains no more."""


class Workload(Protocol):
    """What makes trainings."""

    @property
    def title(self) -> str: ...

    @property
    def steps(self) -> int: ...

    def build(self, seed: int, *, in_backward: bool) -> Training: ...


class Examination(Protocol):
    """Results of a segment that are taken once its measured steps are over, beside its times."""

    def save_on(self, training: Any, saver: Saver, last_step: int) -> None:
        """More saves, after that of `last_step`."""

    def result(self, training: Any, saver: Saver) -> dict[str, Any]:
        """Once the saver is closed, while its checkpoints are still there."""


@dataclass(frozen=True)
class Experiment:
    """One workload and one interval, compared over all savers."""

    name: str
    workload: Workload
    every: int  # steps from save to save
    savers: tuple[type[Saver], ...]
    rounds: int
    steps: int  # in one segment
    seed: int
    settle_seconds: float = 0.5  # pause between segments, for what the last one left to do
    warm_up_steps_min: int = WARM_UP_STEPS_MIN
    examine: Callable[[Workload, int], Examination] | None = None  # given the seed, too

    @property
    def warm_up_steps(self) -> int:
        """Steps before the measured ones: a multiple of `every`, with one save at least."""
        return -(-self.warm_up_steps_min // self.every) * self.every

    @property
    def last_step(self) -> int:
        """The last one that is measured."""
        return self.warm_up_steps + self.steps

    @property
    def saves(self) -> int:
        """How many a segment must commit."""
        return self.steps // self.every

    def order(self, round_index: int) -> list[type[Saver]]:
        draw = random.Random(f"{self.seed} {self.name} {self.every} {round_index}")
        return draw.sample(self.savers, len(self.savers))


@dataclass
class Segment:
    """One saver in one round; times in seconds."""

    saver: str
    round_index: int
    position: int  # in the round
    seconds: float = 0.0  # of all steps, and until the last save is committed
    drain_seconds: float = 0.0  # the part of it after the last step
    step_seconds: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0  # of all threads of the process
    written_bytes: int | None = None  # to the device, as the kernel counts them
    first_save_seconds: float | None = None  # the call of the first save, which sets up
    last_loss: float = 0.0
    state_bytes: int = 0
    tensor_count: int = 0
    file_bytes: int | None = None  # of the newest checkpoint, at the end
    copy_seconds: float | None = None  # one thread, warm copy of the state; in the baseline's only
    saves_expected: int = 0
    saves: list[SaveRecord] = field(default_factory=list)
    examined: dict[str, Any] = field(default_factory=dict)  # the result of the examination
    error: str = ""

    @property
    def committed(self) -> int:
        return sum(record.committed for record in self.saves)

    @property
    def fault(self) -> str:
        """Why the segment does not count; empty where it does."""
        if self.error or self.committed == self.saves_expected:
            return self.error
        causes = [record.error for record in self.saves if record.error]
        cause = f": {causes[0]}" if causes else ""
        return f"{self.committed} of {self.saves_expected} saves committed{cause}"


def run(
    experiment: Experiment, directory: Path, progress: Callable[[str], Progress]
) -> Iterator[Segment]:
    """All segments, in the order in which they are run."""
    for round_index in range(experiment.rounds):
        for position, saver in enumerate(experiment.order(round_index)):
            segment = Segment(saver.name, round_index, position)
            segment.saves_expected = 0 if saver.is_baseline else experiment.saves
            label = f"{experiment.name} /{experiment.every} round {round_index + 1}: {saver.name}"
            run_segment(segment, experiment, saver, directory, progress(label))
            yield segment


def run_segment(
    segment: Segment,
    experiment: Experiment,
    saver: type[Saver],
    directory: Path,
    progress: Progress,
) -> None:
    """Measures one segment; what goes wrong in a saver is the segment's error."""
    place = directory / f"{experiment.name}-{segment.round_index}-{segment.position}"
    place.mkdir()
    try:
        segment.error = saver.missing()
        if not segment.error:
            measure(segment, experiment, saver, place / "run", progress)
    except Exception as error:  # shown, never dropped
        segment.error = f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(place)
        gc.collect()
        sync_directory(directory)
        time.sleep(experiment.settle_seconds)


def measure(
    segment: Segment,
    experiment: Experiment,
    make_saver: type[Saver],
    path: Path,
    progress: Progress,
) -> None:
    training = experiment.workload.build(experiment.seed, in_backward=make_saver.in_backward)
    try:
        save_and_train(segment, experiment, training, make_saver, path, progress)
        if make_saver.is_baseline:
            segment.copy_seconds = copy_seconds(training.tensors())
    finally:
        training.release()


def save_and_train(
    segment: Segment,
    experiment: Experiment,
    training: Training,
    make_saver: type[Saver],
    path: Path,
    progress: Progress,
) -> None:
    examine = experiment.examine
    examination = None if examine is None else examine(experiment.workload, experiment.seed)
    first, last = experiment.warm_up_steps + 1, experiment.last_step
    saver = make_saver(training, path, experiment.every)
    try:
        warm_up(segment, experiment, training, saver)
        train(segment, experiment, training, saver, progress)
        saver.settle()
        newest = saver.newest()
        if newest is not None:
            segment.file_bytes = sum(one.stat().st_size for one in files_in(newest))
        if examination is not None:
            examination.save_on(training, saver, last)
    finally:
        saver.close()
        segment.saves = [one for one in saver.records if first <= one.step <= last]
    for record in saver.records:
        if record.step < first and not record.committed:
            raise RuntimeError(f"warm-up save of step {record.step}: {record.error or 'skipped'}")
    if examination is not None:
        segment.examined = examination.result(training, saver)


def warm_up(segment: Segment, experiment: Experiment, training: Training, saver: Saver) -> None:
    """First steps and first saves: memory is touched and plans are made before it counts."""
    for step in range(1, experiment.warm_up_steps + 1):
        training.train_step(step, saver)
        saver.after_step(step)
    saver.drain()
    if saver.records:
        segment.first_save_seconds = saver.records[0].call_seconds
    tensors = training.tensors()
    segment.tensor_count = len(tensors)
    segment.state_bytes = sum(tensor.nbytes for tensor in tensors)


def train(
    segment: Segment, experiment: Experiment, training: Training, saver: Saver, progress: Progress
) -> None:
    """The measured steps, and the drain after them."""
    first = experiment.warm_up_steps + 1
    written = written_bytes()
    cpu_began = time.process_time()
    began = step_began = time.perf_counter()
    for step in range(first, first + experiment.steps):
        segment.last_loss = training.train_step(step, saver)
        saver.after_step(step)
        now = time.perf_counter()
        segment.step_seconds.append(now - step_began)
        step_began = now
        progress(step - first + 1)
    drain_began = time.perf_counter()
    saver.drain()
    ended = time.perf_counter()
    segment.cpu_seconds = time.process_time() - cpu_began
    segment.seconds = ended - began
    segment.drain_seconds = ended - drain_began
    written_after = written_bytes()
    if written is not None and written_after is not None:
        segment.written_bytes = written_after - written


def copy_seconds(tensors: Sequence[Any]) -> float | None:
    """One thread's memcpy of all the tensors into memory that has been written before.

    None where a device holds some: their addresses mean nothing here.
    """
    sources = [torch.as_tensor(tensor).detach().contiguous() for tensor in tensors]
    if not all(source.is_cpu for source in sources):
        return None
    copies = [torch.empty_like(source) for source in sources]
    moves = [
        (copy.data_ptr(), source.data_ptr(), source.nbytes)
        for copy, source in zip(copies, sources, strict=True)
    ]
    passes = []
    for _ in range(COPY_PASSES + 1):
        began = time.perf_counter()
        for move in moves:
            ctypes.memmove(*move)
        passes.append(time.perf_counter() - began)
    return median(passes[1:])
