"""Chainer: a chain, an optimizer and the random generators, with attach()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import deepfreeze as df

from .chainer_net import Net, chainer, digest, images, seed_generators, serialized
from .training import Options


class Own:
    """A loop of its own."""

    forgettable: ClassVar[tuple[str, ...]] = ("optim", "rng")
    misfit: ClassVar[str] = "net.frozen/W"
    large_arrays: ClassVar[int] = 4  # two weights, and two moments of one

    def __init__(self, options: Options) -> None:
        seed_generators(options.seed)
        self.net = Net(192 if options.wide else 144)
        self.optim = chainer.optimizers.Adam(alpha=1e-2).setup(self.net)
        self.net.frozen.disable_update()
        whole: dict[str, Any] = {"net": self.net, "optim": self.optim, "rng": df.RNG()}
        self.state = {name: each for name, each in whole.items() if name != options.forget}
        self.done = 0
        self.ckpt = None if options.run is None else df.Checkpointer(options.run, profile="latency")
        if self.ckpt is not None:
            self.ckpt.attach(self.optim)

    def restore(self, step: int | None) -> int:
        assert self.ckpt is not None
        self.done = self.ckpt.restore(self.state, step) or 0
        return self.done

    def train(self, until: int, saved: Callable[[int], None]) -> None:
        for step in range(self.done + 1, until + 1):
            self.optim.update(self.net.loss, images(step))
            self.optim.alpha *= 0.9
            if self.ckpt is not None:
                self.ckpt.save(step, self.state)
                saved(step)
        self.done = until

    def digest(self) -> str:
        net = {f"net/{name}": value for name, value in serialized(self.net).items()}
        optim = {f"optim/{name}": value for name, value in serialized(self.optim).items()}
        return digest(net | optim | {"alpha": self.optim.alpha})

    def close(self) -> None:
        if self.ckpt is not None:
            self.ckpt.close()
