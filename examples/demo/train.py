"""One training process: `python -m examples.demo.train nt3 --run runs/nt3`.

Writes one JSON line per step (the parent shows progress and chooses its moment to kill by them)
and one with the result. With --run it resumes from a checkpoint if there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

import deepfreeze as df
from examples.demo.workloads import CHOICES, MODES, Workload
from examples.digest import training_digest
from examples.loader import endless


@dataclass
class Outcome:
    """The measurements of one process; times in seconds."""

    resumed_from: int = 0
    steps: int = 0
    seconds: float = 0.0  # from the first step until the last checkpoint is durable
    loss: float = 0.0
    digest: str = ""
    restored_digest: str = ""  # before the first step; empty if nothing was restored
    stalls: list[float] = field(default_factory=list)  # per save: in save() and in its fences
    fences: list[float] = field(default_factory=list)  # the part of it in fences
    durable: list[float] = field(default_factory=list)  # from save() to committed
    bytes: int = 0  # of one checkpoint
    guarded_bytes: int = 0  # the part that was captured while training continued
    failed_saves: int = 0


def state_of(workload: Workload) -> dict[str, Any]:
    return {
        "model": workload.model,
        **numbered("optim", workload.optims),
        **numbered("sched", workload.scheds),
        "data": workload.loader,
        "rng": df.RNG(),
    }


def numbered(name: str, objects: Sequence[object]) -> dict[str, object]:
    """One keeps its name; several get their places behind it."""
    if len(objects) == 1:
        return {name: objects[0]}
    return {f"{name}{index}": item for index, item in enumerate(objects)}


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def train_loop(
    workload: Workload, first: int, last: int, save: Callable[[int, float], None] | None = None
) -> float:
    """Steps `first` to `last`; returns the last loss."""
    loss = 0.0
    batches = endless(workload.loader)
    for step in range(first, last + 1):
        loss = workload.train_step(*next(batches))
        if save is not None:
            save(step, loss)
        say({"step": step})
    return loss


def run_plain(workload: Workload, steps: int) -> Outcome:
    """The reference: no checkpoint anywhere."""
    began = time.perf_counter()
    loss = train_loop(workload, 1, steps)
    outcome = Outcome(steps=steps, seconds=time.perf_counter() - began, loss=loss)
    outcome.digest = training_digest(state_of(workload))
    return outcome


def run_checkpointed(workload: Workload, steps: int, run: str) -> Outcome:
    """Saves a checkpoint at every step; resumes if there is one."""
    outcome = Outcome(steps=steps)
    state = state_of(workload)
    handles: list[df.SaveHandle | None] = []
    in_save: list[float] = []

    with df.Checkpointer(run, keep=df.keep(last=3), profile="latency") as ckpt:
        outcome.resumed_from = ckpt.restore(state) or 0
        outcome.restored_digest = training_digest(state) if outcome.resumed_from else ""
        for optim in workload.optims:
            ckpt.attach(optim, "after_update" if workload.inside_backward else "window")

        def save(step: int, loss: float) -> None:
            began = time.perf_counter()
            handles.append(ckpt.step(step, state, metrics={"loss": loss}))
            in_save.append(time.perf_counter() - began)

        began = time.perf_counter()
        outcome.loss = train_loop(workload, outcome.resumed_from + 1, steps, save)
        ckpt.wait()
        outcome.seconds = time.perf_counter() - began
    add_statuses(outcome, handles, in_save)
    outcome.digest = training_digest(state)
    return outcome


def add_statuses(
    outcome: Outcome, handles: list[df.SaveHandle | None], in_save: list[float]
) -> None:
    for handle, seconds in zip(handles, in_save, strict=True):
        status = handle.status() if handle is not None else None
        if status is None or not status.durable:
            outcome.failed_saves += 1
            continue
        outcome.durable.append(status.durable_seconds)
        outcome.bytes = status.bytes
        outcome.guarded_bytes = status.guarded_bytes
        outcome.fences.append(status.fence_seconds)
        outcome.stalls.append(seconds + status.fence_seconds)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="examples.demo.train", description=__doc__)
    parser.add_argument("workload", choices=sorted(CHOICES))
    parser.add_argument("--run", help="checkpoint every step into this run; resume from it")
    parser.add_argument("--until", type=int, metavar="STEP", help="end after it")
    parser.add_argument("--full", action="store_true", help="the published size of NT3")
    parser.add_argument("--mode", choices=MODES, default="window")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    warnings.filterwarnings("ignore", message="'set_vital' is deprecated")  # torchdata's own call
    # The number of threads decides the order of sums, so it is part of a run's definition.
    torch.set_num_threads(options.threads)
    df.determinism(options.seed)
    choice = CHOICES[options.workload]
    workload = choice.build(options.seed, options.full, options.mode == "after_update")
    steps = options.until or choice.size(options.full).steps
    if options.run is None:
        outcome = run_plain(workload, steps)
    else:
        outcome = run_checkpointed(workload, steps, options.run)
    say({"result": asdict(outcome)})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
