"""JAX: a pytree that holds everything, and its writers."""

import os
from functools import partial
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax import numpy as jnp

from lab.programs.restart_job import BATCHES, DATA, MODEL, OPTIMIZER, RNG, SCHEDULER, THREADS, Job
from lab.programs.restart_protocol import (
    Array,
    ByDeepFreeze,
    Entries,
    Stepped,
    Task,
    Voice,
    rows,
    run_loop,
)

PACKAGES = ("jax", "jaxlib", "optax", "orbax-checkpoint", "deepfreeze-checkpoint")
TRACE = optax.trace(Task.MOMENTUM)
RATES = optax.scale_by_schedule(optax.exponential_decay(-Task.RATE, 1, Task.DECAY))
SMALL, KEPT = 1e-5, 0.9  # of batch normalisation: added to the variance; of the running means
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"


@jax.jit  # type: ignore[untyped-decorator, unused-ignore]
def new_model(key: Any) -> dict[str, Any]:
    first, second = jax.random.split(key)
    return {
        "trained": {
            "w": jax.random.normal(first, (Task.WIDTH, Task.HIDDEN)) / Task.WIDTH**0.5,
            "b": jnp.zeros(Task.HIDDEN), "scale": jnp.ones(Task.HIDDEN),
            "shift": jnp.zeros(Task.HIDDEN),
            "out": jax.random.normal(second, (Task.HIDDEN, 1)) / Task.HIDDEN**0.5,
        },
        "mean": jnp.zeros(Task.HIDDEN),
        "variance": jnp.ones(Task.HIDDEN),
    }  # fmt: skip


def forward(trained: Any, key: Any, x: Any, y: Any) -> Any:
    """The loss, and the statistics of the batch."""
    x = x @ trained["w"] + trained["b"]
    mean, variance = x.mean(0), x.var(0)
    x = (x - mean) / jnp.sqrt(variance + SMALL) * trained["scale"] + trained["shift"]
    kept = jax.random.bernoulli(key, 1 - Task.DROPOUT, x.shape) / (1 - Task.DROPOUT)
    return jnp.mean((jax.nn.relu(x) * kept @ trained["out"] - y) ** 2), (mean, variance)


@partial(jax.jit, donate_argnums=0)
def update(state: Any, x: Any, y: Any) -> Any:
    """Everything but the place in the data."""
    key, now = jax.random.split(state[RNG])
    model = state[MODEL]
    trained = model["trained"]
    (loss, (mean, variance)), grads = jax.value_and_grad(forward, has_aux=True)(trained, now, x, y)
    grads, trace = TRACE.update(grads, state[OPTIMIZER], trained)
    changes, count = RATES.update(grads, state[SCHEDULER], trained)
    model = {
        "trained": optax.apply_updates(trained, changes),
        "mean": KEPT * model["mean"] + (1 - KEPT) * mean,
        "variance": KEPT * model["variance"] + (1 - KEPT) * variance,
    }
    return {MODEL: model, OPTIMIZER: trace, SCHEDULER: count, RNG: key}, loss


@jax.jit  # type: ignore[untyped-decorator, unused-ignore]
def new_order(key: Any) -> Any:
    key, now = jax.random.split(key)
    return key, jax.random.permutation(now, Task.ROWS)


class Own:
    def __init__(self, seed: int, data_seed: int) -> None:
        first, key, order = jax.random.split(jax.random.key(seed), 3)
        self.x, self.y = rows(data_seed)
        model = new_model(first)
        trained = model["trained"]
        self.state: dict[str, Any] = {
            MODEL: model, OPTIMIZER: TRACE.init(trained), SCHEDULER: RATES.init(trained),
            RNG: key, DATA: self.new_epoch(order),
        }  # fmt: skip
        self.last: Array = np.empty(0)

    def new_epoch(self, key: Any) -> dict[str, Any]:
        key, order = new_order(key)
        return {"key": key, "order": order, "place": np.zeros((), np.int32)}

    def train_step(self) -> float:
        self.last = self.next_batch()
        kept = {name: part for name, part in self.state.items() if name != DATA}
        kept, loss = update(kept, self.x[self.last], self.y[self.last])
        self.state.update(kept)
        return float(loss)

    def next_batch(self) -> Array:
        data = self.state[DATA]
        if int(data["place"]) == BATCHES:
            data = self.new_epoch(data["key"])
        place = int(data["place"])
        self.state[DATA] = {**data, "place": np.asarray(place + 1, np.int32)}
        return np.asarray(data["order"])[place * Task.BATCH : (place + 1) * Task.BATCH]

    def entries(self) -> Entries:
        for path, leaf in jax.tree_util.tree_flatten_with_path(plain(self.state))[0]:
            yield jax.tree_util.keystr(path, simple=True, separator="/"), np.asarray(leaf)

    def batch(self) -> Array:
        return self.last

    def skip(self) -> None:
        self.next_batch()


def is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def plain(tree: Any) -> Any:
    """With the words of typed keys: Orbax and NumPy know no others."""
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if is_key(leaf) else leaf, tree)


def parts_of(training: Own, job: Job) -> dict[str, Any]:
    return {name: training.state[name] for name in job.saved}


class Orbax(Stepped):
    """CheckpointManager as its documentation has it, which saves beside training."""

    def __init__(self, training: Own, job: Job) -> None:
        super().__init__(training, job)
        self.manager = ocp.CheckpointManager((job.place / "run").absolute())

    def save(self, step: int) -> None:
        parts = plain(parts_of(self.training, self.job))
        self.manager.save(step, args=ocp.args.StandardSave(parts))

    def settle(self) -> None:
        self.manager.wait_until_finished()

    def restore(self) -> int:
        step = self.manager.latest_step()
        if step is None:
            raise LookupError("the manager knows no step")
        parts = parts_of(self.training, self.job)
        found = self.manager.restore(step, args=ocp.args.StandardRestore(plain(parts)))
        self.training.state.update(jax.tree.map(like, parts, found))
        return int(step)


def like(current: Any, found: Any) -> Any:
    return jax.random.wrap_key_data(found) if is_key(current) else found


class DeepFreeze(ByDeepFreeze):
    def parts(self) -> dict[str, Any]:
        return parts_of(self.training, self.job)

    def take(self, parts: dict[str, Any]) -> None:
        self.training.state.update(parts)


WRITERS: dict[str, type[Any]] = {"orbax": Orbax, "df": DeepFreeze}


def run(job: Job, data_seed: int, voice: Voice) -> None:
    """All processes share what is compiled: that would take longer than everything else."""
    if job.threads == THREADS:
        os.environ["XLA_FLAGS"] = ONE_THREAD
    else:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job.threads])
    jax.config.update("jax_compilation_cache_dir", str(job.place.parent / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    training = Own(job.seed, data_seed)
    run_loop(job, voice, training, WRITERS[job.writer](training, job) if job.writer else None)
