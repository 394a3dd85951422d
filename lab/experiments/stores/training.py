"""The process that trains, with and without a flush beside it: one request, one answer."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import deepfreeze as df
from lab.networks.torch_workloads import WORKLOADS, Training
from lab.programs.answer import carry_out
from lab.writers.loop import Saver

from .state import state_of

ALONE, FLUSHED = "alone", "a flush beside"
MARGIN = 2.0  # of the bytes that the rate lets pass meanwhile: the flush is not to end first


@dataclass(frozen=True)
class Asked:
    place: str  # an empty directory
    url: str
    workload: str
    rounds: int
    seconds: float  # of a segment, about
    rate: int  # bytes a second
    seed: int


@dataclass
class Segment:
    round: int
    kind: str
    seconds: float = 0.0  # of all steps
    thread_seconds: float = 0.0  # processor time of the thread that trains
    cpu_seconds: float = 0.0  # of the process
    steps: int = 0
    sent: int = 0  # bytes, by the tier's own count
    load: float = 0.0


def work(request: dict[str, Any]) -> dict[str, Any]:
    asked = Asked(**request)
    torch.set_num_threads(1)
    training = WORKLOADS[asked.workload].build(asked.seed, in_backward=False)
    hooks = Saver(training, Path(asked.place), 1)  # saves nothing
    steps = steps_for(asked, training, hooks)
    near = Path(asked.place) / "near"
    with df.Checkpointer(near, ranks=None) as ckpt:
        handle = ckpt.save(1, state_of(int(MARGIN * asked.rate * asked.seconds), asked.seed))
        assert handle is not None
        handle.wait("durable")
    found = []
    for number in range(asked.rounds):
        for kind in (ALONE, FLUSHED) if number % 2 else (FLUSHED, ALONE):
            one = Segment(number, kind, steps=steps, load=os.getloadavg()[0])
            with flush(near, f"{asked.url}/{number}", asked.rate, kind) as sent:
                train(one, training, hooks, sent)
            found.append(asdict(one))
    shutil.rmtree(near)
    return {"segments": found}


def steps_for(asked: Asked, training: Training, hooks: Saver) -> int:
    for step in range(3):
        training.train_step(step, hooks)
    began = time.perf_counter()
    for step in range(3):
        training.train_step(step, hooks)
    return max(3, round(3 * asked.seconds / (time.perf_counter() - began)))


@contextmanager
def flush(near: Path, url: str, rate: int, kind: str) -> Iterator[Any]:
    """Gives a function that tells the bytes that have been sent; the rest is given up then."""
    if kind == ALONE:
        yield lambda: 0
        return
    tier = df.tier(url, rate=rate, close_seconds=0.0)
    ckpt = df.Checkpointer(near, ranks=None, tiers=[tier])
    try:
        while ckpt.tier_status()[0].bytes_sent == 0:
            time.sleep(0.01)
        yield lambda: ckpt.tier_status()[0].bytes_sent
    finally:
        ckpt.close()


def train(one: Segment, training: Training, hooks: Saver, sent: Any) -> None:
    before, cpu, thread = sent(), usage(), time.thread_time()
    began = time.perf_counter()
    for step in range(one.steps):
        training.train_step(step, hooks)
    one.seconds = time.perf_counter() - began
    one.sent = sent() - before
    one.thread_seconds = time.thread_time() - thread
    one.cpu_seconds = usage() - cpu


def usage() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
