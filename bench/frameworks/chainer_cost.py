"""What a checkpoint costs a Chainer training: DeepFreeze beside Chainer's own snapshot writers.

python -m bench.frameworks.chainer_cost --rounds 5. In each round every saver trains once, in an
order shuffled by the seed; all figures are medians [least, greatest] over the rounds.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import deepfreeze as df
from bench.storage import chainer_shim
from deepfreeze.chainer import DeepFreezeExtension

chainer_shim.install()
chainer: Any = importlib.import_module("chainer")
F, L = chainer.functions, chainer.links
WIDTH = 1024  # two layers: 25 MB of parameters and Adam's moments
BATCH = 64


@dataclass
class Segment:
    """One training with one saver. In seconds."""

    run: float = 0.0  # from the end of the first save to that of the last
    stalls: list[float] = field(default_factory=list)  # in the extension, and in the fence
    there: list[float] = field(default_factory=list)  # from the call until the file is there


class Snapshots:
    """Chainer's extension; nothing of it is synced."""

    def __init__(self, place: Path, writer: str, *, compression: bool) -> None:
        writers = chainer.training.extensions.snapshot_writers
        save = functools.partial(chainer.serializers.save_npz, compression=compression)
        self.writer = getattr(writers, writer)(savefun=save)
        self.writer._add_cleanup_hook(self._is_there)
        self.extension = chainer.training.extensions.snapshot(writer=self.writer, n_retains=2)
        self.called = 0.0
        self.there: list[float] = []

    def _is_there(self) -> None:
        self.there.append(time.perf_counter() - self.called)

    def __call__(self, trainer: Any) -> None:
        self.called = time.perf_counter()
        self.extension(trainer)

    def initialize(self, trainer: Any) -> None:
        self.extension.initialize(trainer)

    def wait(self) -> None:
        worker = getattr(self.writer, "_worker", None)
        if worker is not None:
            worker.join()  # its finalize() waits only once

    def finish(self, segment: Segment) -> None:
        self.wait()
        segment.there = self.there[1:]


class DeepFreeze:
    """The extension, with its optimizer attached or not."""

    def __init__(self, place: Path, *, attach: bool) -> None:
        self.ckpt = df.Checkpointer(place / "run", keep=df.keep(last=2), profile="latency")
        self.extension = DeepFreezeExtension(self.ckpt)
        self.attach = attach
        self.handles: list[Any] = []

    def __call__(self, trainer: Any) -> None:
        self.extension(trainer)
        self.handles += self.ckpt.in_flight()[-1:]

    def initialize(self, trainer: Any) -> None:
        if self.attach:
            self.extension.initialize(trainer)

    def wait(self) -> None:
        self.ckpt.wait()

    def finish(self, segment: Segment) -> None:
        self.ckpt.close()
        found = [handle.status() for handle in self.handles[1:]]
        segment.there = [status.durable_seconds for status in found]
        fences = [status.fence_seconds for status in found]
        segment.stalls = [a + b for a, b in zip(segment.stalls, fences, strict=True)]


class Nothing:
    """What run times are compared with."""

    def __init__(self, place: Path) -> None:
        pass

    def __call__(self, trainer: Any) -> None:
        pass

    def initialize(self, trainer: Any) -> None:
        pass

    def wait(self) -> None:
        pass

    def finish(self, segment: Segment) -> None:
        segment.stalls = []


SAVERS: dict[str, Callable[[Path], Any]] = {
    "none": Nothing,
    "deepfreeze": functools.partial(DeepFreeze, attach=True),
    "deepfreeze, not attached": functools.partial(DeepFreeze, attach=False),
    "snapshot": functools.partial(Snapshots, writer="SimpleWriter", compression=True),
    "snapshot, not compressed": functools.partial(
        Snapshots, writer="SimpleWriter", compression=False
    ),
    "ThreadWriter, not compressed": functools.partial(
        Snapshots, writer="ThreadWriter", compression=False
    ),
    "ProcessWriter, not compressed": functools.partial(
        Snapshots, writer="ProcessWriter", compression=False
    ),
}


def trainer_of(steps: int, place: Path) -> Any:
    np.random.seed(0)
    layers = [L.Linear(WIDTH, WIDTH), F.relu, L.Linear(WIDTH, WIDTH)]
    net = chainer.Sequential(*layers)
    optimizer = chainer.optimizers.Adam().setup(net)
    data = np.random.standard_normal((4 * BATCH, WIDTH)).astype(np.float32)
    updater = chainer.training.StandardUpdater(
        chainer.iterators.SerialIterator(data, BATCH),
        optimizer,
        loss_func=lambda x: F.mean(F.square(net(x))),
    )
    return chainer.training.Trainer(updater, (steps, "iteration"), out=str(place))


def train(make: Callable[[Path], Any], place: Path, options: argparse.Namespace) -> Segment:
    saver, segment, began = make(place), Segment(), 0.0
    trainer = trainer_of(options.every * (options.saves + 1), place)

    def save(trainer: Any) -> None:
        nonlocal began
        called = time.perf_counter()
        saver(trainer)
        if trainer.updater.iteration > options.every:
            segment.stalls.append(time.perf_counter() - called)
            return
        saver.wait()  # the first one sets up
        began = time.perf_counter()

    saver.initialize(trainer)
    trainer.extend(save, trigger=(options.every, "iteration"), priority=-200)
    trainer.run()
    saver.wait()
    segment.run = time.perf_counter() - began
    saver.finish(segment)
    return segment


def measure(options: argparse.Namespace) -> dict[str, list[Segment]]:
    order = random.Random(options.seed)
    savers = ["none", *(name for name in options.savers or SAVERS if name != "none")]
    found: dict[str, list[Segment]] = {name: [] for name in savers}
    for _ in range(options.rounds):
        for name in order.sample(savers, len(savers)):
            with tempfile.TemporaryDirectory(dir=options.directory) as place:
                found[name].append(train(SAVERS[name], Path(place), options))
    return found


def spread(values: list[float], form: str) -> str:
    if not values:
        return "-"
    figures = (statistics.median(values), min(values), max(values))
    middle, least, most = (format(value, form) for value in figures)
    return f"{middle} [{least}, {most}]"


def table(found: dict[str, list[Segment]]) -> str:
    lines = ["| saver | run time | stall, ms | until it is there, ms |", "|---|---|---|---|"]
    for name, segments in found.items():
        ratios = [a.run / b.run for a, b in zip(segments, found["none"], strict=True)]
        stalls = [1e3 * each for segment in segments for each in segment.stalls]
        there = [1e3 * each for segment in segments for each in segment.there]
        cells = [name, spread(ratios, ".2f"), spread(stalls, ".1f"), spread(there, ".0f")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--savers", nargs="+", choices=SAVERS, help="default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--saves", type=int, default=4, help="measured, of each training")
    parser.add_argument("--every", type=int, default=4, help="steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="where to save; default: temporary")
    parser.add_argument("--json", type=Path, help="the figures as they are")
    options = parser.parse_args()
    found = measure(options)
    print(table(found))
    if options.json:
        raw = {name: [vars(each) for each in segments] for name, segments in found.items()}
        options.json.write_text(json.dumps(raw, indent=1))


if __name__ == "__main__":
    main()
