"""Chainer's Trainer, with the extension."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from typing import Any, ClassVar

import deepfreeze as df
from deepfreeze.chainer import DeepFreezeExtension

from .chainer_net import Net, chainer, digest, images, seed_generators, serialized
from .training import Options

EXAMPLES = 64  # four batches: three epochs are trained


class Own:
    """An updater, a shuffled iterator, a report."""

    forgettable: ClassVar[tuple[str, ...]] = ("rng", "iterator")
    misfit: ClassVar[str] = "trainer.updater/model:main/frozen/W"
    large_arrays: ClassVar[int] = 4  # two weights, and two moments of one

    def __init__(self, options: Options) -> None:
        seed_generators(options.seed)
        self.net = Net(192 if options.wide else 144)
        optim = chainer.optimizers.Adam(alpha=1e-2).setup(self.net)
        self.net.frozen.disable_update()
        iterator = chainer.iterators.SerialIterator(images(0, EXAMPLES), 16)
        if options.forget == "iterator":
            iterator.serialize = lambda _: None
        updater = chainer.training.StandardUpdater(iterator, optim, loss_func=self.loss)
        self.trainer = chainer.training.Trainer(updater, out=str(options.run or place()))
        self.log = chainer.training.extensions.LogReport(trigger=(3, "iteration"), filename=None)
        self.trainer.extend(self.log)
        self.saved: Callable[[int], None] = lambda _: None
        # extend() writes attributes, which a method has not.
        self.trainer.extend(functools.partial(self.note), name="note", priority=-300)
        self.ckpt = None
        if options.run is not None:
            self.ckpt = df.Checkpointer(options.run, profile="latency")
            self.extension = DeepFreezeExtension(self.ckpt)
            self.trainer.extend(self.extension)
            if options.forget == "rng":
                self.extension._state_of = lambda trainer: {"trainer": trainer}

    def loss(self, x: Any) -> Any:
        loss = self.net.loss(x)
        chainer.report({"loss": loss}, self.net)
        return loss

    def note(self, trainer: Any) -> None:
        if self.ckpt is not None:
            self.saved(trainer.updater.iteration)

    def restore(self, step: int | None) -> int:
        assert self.ckpt is not None
        return self.extension.resume(self.trainer, step)

    def train(self, until: int, saved: Callable[[int], None]) -> None:
        self.saved = saved
        self.trainer.stop_trigger = lambda trainer: trainer.updater.iteration >= until
        self.trainer.run()

    def digest(self) -> str:
        log = serialized(self.log)
        entries = json.loads(str(log.pop("_log")))
        for entry in entries:
            entry.pop("elapsed_time")
        return digest(serialized(self.trainer.updater) | log | {"log": json.dumps(entries)})

    def close(self) -> None:
        if self.ckpt is not None:
            self.ckpt.close()


def place() -> str:
    """A trainer wants a directory, and here writes nothing."""
    return tempfile.gettempdir()
