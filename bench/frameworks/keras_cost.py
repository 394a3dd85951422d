"""What saves cost fit(): `KERAS_BACKEND=jax python -m bench.frameworks.keras_cost`.

A dense model with Adam trains the same steps without saves, with DeepFreezeCallback, and with
Keras's BackupAndRestore, one after the other in an order drawn anew in each round. Counted is fit()
until its last checkpoint is committed; told are the ratios to the segment without saves of the
same round, and how long a save keeps fit() waiting in its callback: median, least and greatest.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

import deepfreeze as df
from deepfreeze.keras import DeepFreezeCallback

BATCH, WIDTH = 256, 1024
Saver = Callable[[Path, int], list[Any]]


def deepfreeze(place: Path, every: int) -> list[Any]:
    return [DeepFreezeCallback(place, every=df.every(steps=every), keep=df.keep(last=2))]


def backup(place: Path, every: int) -> list[Any]:
    return [keras.callbacks.BackupAndRestore(place, save_freq=every, delete_checkpoint=False)]


SAVERS: dict[str, Saver] = {
    "none": lambda place, every: [],
    "DeepFreezeCallback": deepfreeze,
    "BackupAndRestore": backup,
}


def make_model() -> Any:
    layers = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(4)]
    model = keras.Sequential([keras.layers.Input((WIDTH,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(1e-4), loss="mse")
    return model


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


def segment(model: Any, x: Any, saver: Saver, every: int) -> tuple[float, list[float]]:
    """Seconds of an epoch, and of each save in it."""
    clock = Clock(every)
    with tempfile.TemporaryDirectory(prefix="keras-cost-") as place:
        callbacks = [clock, *map(clock.watch, saver(Path(place) / "run", every))]
        model.fit(x, x[:, :1], BATCH, 2, shuffle=False, verbose=0, callbacks=callbacks)
        return time.perf_counter() - clock.began, clock.blocked


def rounds_of(
    count: int, steps: int, every: int, seed: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """By saver: seconds of each segment, and of each save."""
    model = make_model()
    x = np.random.default_rng(seed).standard_normal((steps * BATCH, WIDTH), dtype=np.float32)
    seconds: dict[str, list[float]] = {name: [] for name in SAVERS}
    blocked: dict[str, list[float]] = {name: [] for name in SAVERS}
    order = random.Random(seed)
    for _ in range(count):
        for name in order.sample(sorted(SAVERS), len(SAVERS)):
            whole, each = segment(model, x, SAVERS[name], every)
            seconds[name].append(whole)
            blocked[name] += each
    print(f"{keras.backend.backend()}: {state_bytes(model) / 1e6:.0f} MB of state")
    return seconds, blocked


def spread(values: list[float], digits: int) -> str:
    middle = statistics.median(values)
    return f"{middle:.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seconds, blocked = rounds_of(options.rounds, options.steps, options.every, options.seed)
    for name, own in seconds.items():
        ratios = [a / b for a, b in zip(own, seconds["none"], strict=True)]
        waits = [1000 * each for each in blocked[name]]
        print(f"{name:<20} {spread(ratios, 3)}", f" {spread(waits, 1)} ms" if waits else "")
    if options.json:
        text = json.dumps({"seconds": seconds, "blocked_seconds": blocked}, indent=1)
        options.json.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
