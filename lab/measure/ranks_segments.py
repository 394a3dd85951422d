"""What the ranks of one job do together, in any framework: each saver trains for one segment.

A saver that fails on one rank alone may leave the others waiting: whoever started the job ends it.
"""

import gc
import json
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from lab.measure.files import sync_directory
from lab.measure.loop import Experiment, Segment, save_and_train
from lab.writers.loop import Saver


class Job(Protocol):
    """The ranks, and how they meet."""

    @property
    def rank(self) -> int: ...

    def gathered(self, value: Any) -> list[Any]:
        """Every rank's, by rank, on rank 0 at least; returns once all have come. JSON values."""


def train_all(experiment: Experiment, rounds: Iterable[int], shared: Path, job: Job) -> Any:
    """By rank, what is told of its segments."""
    segments = []
    for number in rounds:
        for position, saver in enumerate(experiment.order(number)):
            place = shared / str(position)  # of one length: DCP stores the path
            if job.rank == 0:
                place.mkdir()
            job.gathered(None)
            segments.append(train(experiment, saver, Segment(saver.name, number, position), place))
            job.gathered(None)
            if job.rank == 0:
                shutil.rmtree(place)
                sync_directory(shared)
            time.sleep(experiment.settle_seconds)
    return job.gathered([told(segment) for segment in segments])


def train(experiment: Experiment, saver: type[Saver], segment: Segment, place: Path) -> Segment:
    segment.saves_expected = 0 if saver.is_baseline else experiment.saves
    training = None
    try:
        training = experiment.workload.build(experiment.seed, in_backward=False)
        save_and_train(segment, experiment, training, saver, place / "run", lambda _: None)
    except Exception as error:  # told, never dropped
        segment.error = f"{type(error).__name__}: {error}"
    finally:
        if training is not None:
            training.release()
        gc.collect()
    return segment


def told(segment: Segment) -> dict[str, Any]:
    return {
        "saver": segment.saver,
        "round": segment.round_index,
        "position": segment.position,
        "seconds": segment.seconds,
        "step_seconds": segment.step_seconds,
        "first_stall": segment.first_save_seconds,
        "stalls": [record.stall_seconds for record in segment.saves],
        "durable": [record.durable_seconds for record in segment.saves],
        "own_bytes": segment.saves[-1].own_bytes if segment.saves else None,
        "state_bytes": segment.state_bytes,
        "tensors": segment.tensor_count,
        "file_bytes": segment.file_bytes,
        "fault": segment.fault,
    }


# A rank of torch.distributed: how it joins, talks to the others, and reports.


def join() -> int:
    """The caller's rank, once all are there."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    return dist.get_rank()


def gathered(value: Any) -> list[Any]:
    """Every rank's, by rank."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


class TorchJob:
    """The ranks that torchrun has started."""

    def __init__(self) -> None:
        self.rank = join()

    def gathered(self, value: Any) -> list[Any]:
        return gathered(value)


def report(arguments: dict[str, Any], value: Any) -> None:
    if dist.get_rank() == 0:
        Path(arguments["out"]).write_text(json.dumps(value))
    dist.destroy_process_group()
