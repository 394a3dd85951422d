"""Small runs for the tests of `deepfreeze explore`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

import deepfreeze as df
from deepfreeze.exploring.answers import Answers
from deepfreeze.exploring.cache import Cache
from deepfreeze.exploring.discovering import runs_of
from deepfreeze.exploring.runs import Run, read_runs
from deepfreeze.exploring.server import PageServer
from deepfreeze.exploring.statistics import RunNumbers

State = dict[str, Any]


def save_all(run: Path, states: dict[int, State], **options: Any) -> list[State]:
    """Saves each state at its step, with a metric; the states in order."""
    with df.Checkpointer(run, **options) as ckpt:
        for step, state in states.items():
            handle = ckpt.save(step, state, metrics={"loss": 10.0 / (step + 1)}, tags={"lr": "0.1"})
            assert handle is not None
            handle.wait("durable", timeout=120)
    return list(states.values())


def weights(step: int, count: int = 3) -> State:
    """Arrays that change from step to step, a different one for each step."""
    random = np.random.default_rng(step)
    return {
        "model": {f"layer{i}": random.standard_normal((4, 5)).astype("f4") for i in range(count)},
        "step": step,
    }


@contextmanager
def serving(made: Answers) -> Iterator[PageServer]:
    """A server of the page on loopback, in a thread of its own."""
    with PageServer(made) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def answers(cache: Path, *paths: Path) -> Answers:
    """All that the page could ask, with every number computed."""
    made = Answers(read_runs(runs_of([str(path) for path in paths])), Cache(cache))
    made.compute_all(lambda _: None)
    return made


def numbers_of(cache: Path, run: Path) -> RunNumbers:
    made = answers(cache, run)
    return made.numbers(made.runs[0].id)


def contents(run: Path) -> dict[str, tuple[int, int, int]]:
    """Stamps that a write to any file or directory of a run would change, by path."""
    found = {}
    for path in (run, *run.rglob("*")):
        status = path.lstat()
        found[str(path.relative_to(run))] = status.st_ino, status.st_size, status.st_mtime_ns
    return found


def named(runs: list[Run], name: str) -> Run:
    (found,) = [run for run in runs if run.name == name]
    return found
