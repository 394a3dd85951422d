"""Flax NNX: a module with batch norm and dropout, its optimizer, and a step that they donate to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import optax
from flax import nnx
from jax import numpy as jnp

import deepfreeze as df

from .jax_training import digest_of
from .training import SEED, STEPS, Options

TRAINED = nnx.All(nnx.Param, nnx.Not(nnx.PathContains("frozen")))


class Net(nnx.Module):
    """Its first layer is frozen, the last two have one weight."""

    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.frozen = nnx.Linear(128, width, rngs=rngs)
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.inner = nnx.Linear(width, width, rngs=rngs)
        self.again = nnx.Linear(width, width, rngs=rngs)
        self.again.kernel = self.inner.kernel
        self.dropout = nnx.Dropout(0.2, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.norm(self.frozen(x))
        return self.again(self.dropout(nnx.relu(self.inner(x))))


@partial(nnx.jit, donate_argnums=(0, 1))
def update(net: Net, optim: nnx.Optimizer, images: Any) -> None:
    def loss_of(net: Net) -> Any:
        return jnp.mean(net(images) ** 2)

    grads = nnx.grad(loss_of, argnums=nnx.DiffState(0, TRAINED))(net)
    optim.update(net, grads)


class Own:
    """A loop of its own."""

    forgettable: ClassVar[tuple[str, ...]] = ("net", "optim")
    misfit: ClassVar[str] = "net.frozen.kernel"
    large_arrays: ClassVar[int] = 4  # two weights, and two moments of one

    def __init__(self, options: Options) -> None:
        net = Net(192 if options.wide else 144, nnx.Rngs(options.seed))
        rule = optax.adamw(optax.cosine_decay_schedule(1e-2, STEPS))
        self.whole: dict[str, Any] = {"net": net, "optim": nnx.Optimizer(net, rule, wrt=TRAINED)}
        self.state = {name: each for name, each in self.whole.items() if name != options.forget}
        self.done = 0
        self.ckpt = None if options.run is None else df.Checkpointer(options.run, profile="latency")

    def restore(self, step: int | None) -> int:
        assert self.ckpt is not None
        self.done = self.ckpt.restore(self.state, step) or 0
        return self.done

    def train(self, until: int, saved: Callable[[int], None]) -> None:
        for step in range(self.done + 1, until + 1):
            images = np.random.default_rng(SEED + step).standard_normal((16, 128), np.float32)
            update(self.whole["net"], self.whole["optim"], images)
            if self.ckpt is not None:
                self.ckpt.save(step, self.state)
                saved(step)
        self.done = until

    def digest(self) -> str:
        return digest_of([nnx.state(each) for each in self.whole.values()])

    def close(self) -> None:
        if self.ckpt is not None:
            self.ckpt.close()
