"""JAX: a plain pytree, optax, and a jitted step to which everything that changes is donated."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import numpy as np
import optax
from jax import numpy as jnp

import deepfreeze as df

from .training import SEED, STEPS, Options

OPTIM = optax.adamw(optax.cosine_decay_schedule(1e-2, STEPS))


def new_net(width: int, key: Any) -> dict[str, Any]:
    """The weight of "again" is that of "inner"."""
    first, second = jax.random.split(key)
    weight = jax.random.normal(second, (width, width)) / width**0.5
    return {
        "frozen": {"w": jax.random.normal(first, (128, width)) / 128**0.5},
        "inner": {"w": weight, "b": jnp.zeros(width)},
        "again": {"w": weight, "b": jnp.zeros(width)},
    }


def loss_of(trained: Any, frozen: Any, key: Any, images: Any) -> Any:
    x = images @ frozen["w"]
    x = jax.nn.relu(x @ trained["inner"]["w"] + trained["inner"]["b"])
    x = x * jax.random.bernoulli(key, 0.8, x.shape)
    return jnp.mean((x @ trained["inner"]["w"] + trained["again"]["b"]) ** 2)


@partial(jax.jit, donate_argnums=(0, 1, 2))
def update(trained: Any, opt: Any, key: Any, frozen: Any, images: Any) -> Any:
    key, now = jax.random.split(key)
    grads = jax.grad(loss_of)(trained, frozen, now, images)
    changes, opt = OPTIM.update(grads, opt, trained)
    return optax.apply_updates(trained, changes), opt, key


def trained_of(net: dict[str, Any]) -> dict[str, Any]:
    """The parts of a net that change, each array once."""
    return {"inner": net["inner"], "again": {"b": net["again"]["b"]}}


class Own:
    """A loop of its own."""

    forgettable: ClassVar[tuple[str, ...]] = ("opt", "key")
    misfit: ClassVar[str] = "net.frozen.w"
    large_arrays: ClassVar[int] = 4  # two weights, and two moments of one

    def __init__(self, options: Options) -> None:
        first, key = jax.random.split(jax.random.key(options.seed))
        net = new_net(192 if options.wide else 144, first)
        self.whole: dict[str, Any] = {"net": net, "opt": OPTIM.init(trained_of(net)), "key": key}
        self.forget = options.forget
        self.done = 0
        self.ckpt = None if options.run is None else df.Checkpointer(options.run, profile="latency")

    def state(self) -> dict[str, Any]:
        return {name: each for name, each in self.whole.items() if name != self.forget}

    def restore(self, step: int | None) -> int:
        assert self.ckpt is not None
        state = self.state()
        self.done = self.ckpt.restore(state, step) or 0
        self.whole.update(state)
        return self.done

    def train(self, until: int, saved: Callable[[int], None]) -> None:
        for step in range(self.done + 1, until + 1):
            self.update(step)
            if self.ckpt is not None:
                self.ckpt.save(step, self.state())
                saved(step)
        self.done = until

    def update(self, step: int) -> None:
        images = np.random.default_rng(SEED + step).standard_normal((16, 128), np.float32)
        net = self.whole["net"]
        trained, self.whole["opt"], self.whole["key"] = update(
            trained_of(net), self.whole["opt"], self.whole["key"], net["frozen"], images
        )
        weight = trained["inner"]["w"]
        again = {"w": weight, "b": trained["again"]["b"]}
        self.whole["net"] = {"frozen": net["frozen"], "inner": trained["inner"], "again": again}

    def digest(self) -> str:
        return digest_of(self.whole)

    def close(self) -> None:
        if self.ckpt is not None:
            self.ckpt.close()


def digest_of(tree: Any) -> str:
    """SHA-256 of the names and bytes of a pytree's leaves."""
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        found.update(jax.tree_util.keystr(path).encode())
        found.update(np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes())
    return found.hexdigest()
