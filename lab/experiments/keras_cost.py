"""The cost of saves for fit(): `KERAS_BACKEND=jax python -m lab.experiments.keras_cost`.

A model (four dense layers with Adam, or on tensorflow a network of lab.experiments.frameworks)
trains the same steps without saves, with DeepFreezeCallback in each of its modes, and with Keras's
BackupAndRestore, one after the other in an order drawn anew in each round. Counted is fit() until
its last checkpoint is committed; told are the ratios to the segment without saves of the same
round, and how long a save keeps fit() waiting in its callback: median, least and greatest.
"""

import argparse
import hashlib
import importlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import keras
import numpy as np

import deepfreeze as df
from deepfreeze.keras import DeepFreezeCallback
from lab.networks.data import classified

BATCH, WIDTH = 256, 1024
Saver = Callable[[Path, int], list[Any]]
Mode = Literal["window", "after_update"]


def deepfreeze(place: Path, every: int, **more: Any) -> list[Any]:
    return [DeepFreezeCallback(place, every=df.every(steps=every), keep=df.keep(last=2), **more)]


def backup(place: Path, every: int) -> list[Any]:
    return [keras.callbacks.BackupAndRestore(place, save_freq=every, delete_checkpoint=False)]


SAVERS: dict[str, Saver] = {
    "none": lambda place, every: [],
    "DeepFreezeCallback": deepfreeze,
    "BackupAndRestore": backup,
}
if keras.backend.backend() == "tensorflow":
    SAVERS["DeepFreezeCallback, after_update"] = partial(deepfreeze, mode="after_update")


@dataclass(frozen=True)
class Task:
    """A model, and all batches of an epoch."""

    model: Any
    x: Any
    y: Any
    batch: int

    def fit(self, callbacks: list[Any], epochs: int) -> None:
        self.model.fit(
            self.x, self.y, self.batch, epochs, shuffle=False, verbose=0, callbacks=callbacks
        )


def make_task(network: str, steps: int, seed: int) -> Task:
    keras.utils.set_random_seed(seed)
    if network != "dense":
        workload = importlib.import_module("lab.networks.keras_workloads").WORKLOADS[network]
        x, y = classified(
            (steps * workload.shape[0], *workload.shape[1:]),
            workload.classes,
            np.random.default_rng(seed),
        )
        return Task(workload.make(), x, y, workload.shape[0])
    layers = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(4)]
    model = keras.Sequential([keras.layers.Input((WIDTH,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(1e-4), loss="mse")
    x = np.random.default_rng(seed).standard_normal((steps * BATCH, WIDTH), dtype=np.float32)
    return Task(model, x, x[:, :1], BATCH)


def state_bytes(model: Any) -> int:
    variables = (*model.variables, *model.optimizer.variables)
    return sum(int(np.prod(v.shape)) * np.dtype(v.dtype).itemsize for v in variables)


class Clock(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    """Counts from the second epoch on: the first makes arenas, plans and graphs."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = every
        self.epoch = 0
        self.began = 0.0
        self.blocked: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch, self.began = epoch, time.perf_counter()

    def watch(self, saver: Any) -> Any:
        """Times what the saver does behind the batches that it saves."""
        original = saver.on_train_batch_end

        def timed(batch: int, logs: Any = None) -> None:
            began = time.perf_counter()
            original(batch, logs)
            if self.epoch and (batch + 1) % self.every == 0:
                self.blocked.append(time.perf_counter() - began)

        saver.on_train_batch_end = timed
        return saver


def segment(task: Task, saver: Saver, options: argparse.Namespace) -> tuple[float, list[float]]:
    """Seconds of an epoch, and of each save in it."""
    clock = Clock(options.every)
    with tempfile.TemporaryDirectory(prefix="keras-cost-", dir=options.directory) as place:
        task.fit([clock, *map(clock.watch, saver(Path(place) / "run", options.every))], 2)
        return time.perf_counter() - clock.began, clock.blocked


def rounds_of(options: argparse.Namespace) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """By saver: seconds of each segment, and of each save."""
    task = make_task(options.network, options.steps, options.seed)
    seconds: dict[str, list[float]] = {name: [] for name in SAVERS}
    blocked: dict[str, list[float]] = {name: [] for name in SAVERS}
    order = random.Random(options.seed)
    for _ in range(options.rounds):
        for name in order.sample(sorted(SAVERS), len(SAVERS)):
            whole, each = segment(task, SAVERS[name], options)
            seconds[name].append(whole)
            blocked[name] += each
    print(f"{keras.backend.backend()}: {state_bytes(task.model) / 1e6:.0f} MB of state")
    return seconds, blocked


def stored_by(mode: Mode, options: argparse.Namespace) -> dict[int, bytes]:
    """By step, the digest of what a training from the same seed has stored of its model."""
    task = make_task(options.network, 3, options.seed)
    found = {}
    with tempfile.TemporaryDirectory(prefix="keras-cost-", dir=options.directory) as place:
        task.fit([DeepFreezeCallback(Path(place) / "run", every=None, mode=mode)], 1)
        run = df.Checkpointer(Path(place) / "run")
        for step in run.steps():
            digest = hashlib.sha256()
            for group in run.load(step)["model"].values():
                for name, array in group.items():
                    digest.update(name.encode() + np.asarray(array).tobytes())
            found[step] = digest.digest()
    return found


def spread(values: list[float], digits: int) -> str:
    middle = statistics.median(values)
    return f"{middle:.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--network", choices=("dense", "nt3", "resnet50", "tiny"), default="dense")
    parser.add_argument(
        "--bytes", action="store_true", help="only: do both modes store the same (tensorflow)"
    )
    parser.add_argument("--directory", type=Path, help="where to save; default: temporary")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.bytes:
        importlib.import_module("tensorflow").config.experimental.enable_op_determinism()
        window, graph = (stored_by(mode, options) for mode in get_args(Mode))
        print(f"both modes: {'the same' if window == graph else 'OTHER'} bytes of {sorted(window)}")
        return 0 if window == graph else 1
    seconds, blocked = rounds_of(options)
    for name, own in seconds.items():
        ratios = [a / b for a, b in zip(own, seconds["none"], strict=True)]
        waits = [1000 * each for each in blocked[name]]
        print(f"{name:<34} {spread(ratios, 3)}", f" {spread(waits, 1)} ms" if waits else "")
    if options.json:
        text = json.dumps({"seconds": seconds, "blocked_seconds": blocked}, indent=1)
        options.json.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
