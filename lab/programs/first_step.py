"""A process that trains, saves and ends; or a new one that resumes, until its first step is done.

What is measured begins with the process itself: imports and building are a part of every restart.
"""

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import deepfreeze as df
from lab.measure.files import sync_all
from lab.programs.answer import carry_out

TICKS = os.sysconf("SC_CLK_TCK")
OWN = "own"  # the framework's own writer
MODULES = {
    "pytorch": "lab.networks.torch_workloads",
    "chainer": "lab.networks.chainer_workloads",
    "tensorflow": "lab.networks.keras_workloads",
    "jax": "lab.networks.jax_workloads",
}


class NoHooks:
    """Nobody saves while the one step is done."""

    def before_update(self) -> None:
        """Nothing."""

    def before_average(self) -> None:
        """Nothing."""


def module(name: str) -> Any:
    return importlib.import_module(name)


def since_start() -> float:
    """Seconds since this process was started, imports and all."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / TICKS


def save_torch(training: Any, path: Path) -> None:
    module("torch").save(training.state_dicts(), path)


def restore_torch(training: Any, path: Path) -> None:
    loaded = module("torch").load(path)
    for name, part in training.state.items():
        part.load_state_dict(loaded[name])


def save_chainer(training: Any, path: Path) -> None:
    module("chainer.serializers.npz").save_npz(str(path), training, compression=False)


def restore_chainer(training: Any, path: Path) -> None:
    module("chainer.serializers.npz").load_npz(str(path), training)


def checkpoint_of(training: Any) -> Any:
    model = training.model
    return module("tensorflow").train.Checkpoint(model=model, optimizer=model.optimizer)


def save_tensorflow(training: Any, path: Path) -> None:
    path.mkdir()
    checkpoint_of(training).write(str(path / "checkpoint"))


def restore_tensorflow(training: Any, path: Path) -> None:
    checkpoint_of(training).read(str(path / "checkpoint")).assert_existing_objects_matched()


def save_jax(training: Any, path: Path) -> None:
    with module("orbax.checkpoint").StandardCheckpointer() as checkpointer:
        checkpointer.save(path.absolute(), training.arrays())


def restore_jax(training: Any, path: Path) -> None:
    """Orbax knows no typed keys: they are made again of their words."""
    jax, nnx = module("jax"), module("flax.nnx")
    with module("orbax.checkpoint").StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(path.absolute(), training.arrays())

    def like(current: Any, found: Any) -> Any:
        is_key = jax.numpy.issubdtype(current.dtype, jax.dtypes.prng_key)
        return jax.random.wrap_key_data(found) if is_key else found

    both = (training.model, training.optimizer)
    state = nnx.state(both)
    nnx.replace_by_pure_dict(state, jax.tree.map(like, nnx.to_pure_dict(state), found))
    nnx.update(both, state)


OWNS = {
    "pytorch": (save_torch, restore_torch),
    "chainer": (save_chainer, restore_chainer),
    "tensorflow": (save_tensorflow, restore_tensorflow),
    "jax": (save_jax, restore_jax),
}


def work(request: dict[str, Any]) -> dict[str, Any]:
    window = importlib.import_module(MODULES[request["framework"]])
    imported = since_start()
    training = window.WORKLOADS[request["workload"]].build(request["seed"], in_backward=False)
    built = since_start()
    place = Path(request["directory"])
    if request["part"] == "save":
        return save(request, training, place)
    restore(request, training, place)
    restored = since_start()
    loss = training.train_step(1, NoHooks())
    return {
        "imported": imported, "built": built, "restored": restored, "first_step": since_start(),
        "loss": float(loss).hex(),
    }  # fmt: skip


def save(request: dict[str, Any], training: Any, place: Path) -> dict[str, Any]:
    """Tells the loss of the step that a resumed process does first."""
    training.train_step(0, NoHooks())
    if request["writer"] == OWN:
        OWNS[request["framework"]][0](training, place / "checkpoint")
        sync_all(place / "checkpoint")
    else:
        with df.Checkpointer(place / "run") as checkpointer:
            handle = checkpointer.save(0, state_of(training))
            assert handle is not None
            handle.wait("durable")
    return {"loss": float(training.train_step(1, NoHooks())).hex()}


def state_of(training: Any) -> dict[str, Any]:
    """As its documentation says: with the generators."""
    return {**training.state, "rng": df.RNG()}


def restore(request: dict[str, Any], training: Any, place: Path) -> None:
    if request["writer"] == OWN:
        OWNS[request["framework"]][1](training, place / "checkpoint")
        return
    with df.Checkpointer(place / "run") as checkpointer:
        if checkpointer.restore(state_of(training)) is None:
            raise LookupError("nothing was committed")


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
