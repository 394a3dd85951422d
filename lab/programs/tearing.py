"""Asks for a snapshot and goes on updating the state in place until the writer says it is done."""

import gc
import importlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy

from deepfreeze import TornCaptureError
from lab.measure.files import delete
from lab.networks.layout import equal_tensors
from lab.programs.answer import carry_out
from lab.writers.saver import StorageSaver
from lab.writers.values import Array, Values

STEP = 1
FIRST = 1  # that every number holds at the beginning
UPDATES_MIN = 3
COMMIT_SECONDS_MAX = 60.0


class Constant(Values):
    """Every number of a version is that version."""

    def __init__(self) -> None:
        """Draws nothing."""

    def fill(self, array: Array, index: int, version: int) -> None:
        array[...] = version


class Waiting(Thread):
    """For what says that the save is done, beside the training."""

    def __init__(self, wait: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.wait = wait
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.wait()
        except Exception as error:  # the save's outcome
            self.error = error


def attempts(writer: dict[str, Any], request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for number in range(writer["attempts"]):
        place = Path(request["directory"]) / f"{writer['name']}-{number}"
        place.mkdir()
        try:
            yield attempt(writer, place)
        finally:
            delete(place)
            gc.collect()


def attempt(writer: dict[str, Any], place: Path) -> dict[str, Any]:
    kind: type[StorageSaver] = getattr(importlib.import_module(writer["module"]), writer["kind"])
    layout = equal_tensors("tearing", "equal weights", writer["tensors"], writer["bytes"])
    saver = kind(layout, Constant())
    try:
        saver.fill(FIRST)
        saver.open(place)
        update = UPDATES[writer["update"]](saver)
        told = snapshot(saver, place, update, waits=writer["waits"])
    finally:
        saver.close()
    if told["refused"]:
        return told
    saver.fill(0)  # which no snapshot holds
    saver.restore(place, STEP)
    return told | {"holds": held(saver)}


def snapshot(
    saver: StorageSaver, place: Path, update: Callable[[], object], *, waits: bool
) -> dict[str, Any]:
    """`waits`: for what the library asks its user to wait for before the state is changed."""
    pending = saver.save(place, STEP)
    if waits:
        pending.captured()
    update()  # at once: not even a thread is started before
    waiting = Waiting(pending.committed)
    waiting.start()
    updates = 1 + train_beside(waiting, update)
    refused = isinstance(waiting.error, TornCaptureError)
    if waiting.error is not None and not refused:
        raise waiting.error
    said = f"{type(waiting.error).__name__}: {waiting.error}" if refused else ""
    asked = getattr(saver, "asked", FIRST)
    return {"asked": asked, "updates": updates, "refused": said}


def train_beside(waiting: Waiting, update: Callable[[], object]) -> int:
    """How many updates were made."""
    until = time.monotonic() + COMMIT_SECONDS_MAX
    updates = 0
    while waiting.is_alive() or updates < UPDATES_MIN:
        update()
        updates += 1
        if time.monotonic() > until:
            raise TimeoutError(f"not committed within {COMMIT_SECONDS_MAX:g} s")
    waiting.join()
    return updates


def held(saver: StorageSaver) -> list[float]:
    """Every number that stands anywhere in the state, once."""
    found: set[float] = set()
    for array in saver.contents().values():
        low, high = float(array.min()), float(array.max())
        found |= {low} if low == high else set(numpy.unique(array).tolist())
    return sorted(found)


def told(writer: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """One writer's failure is not the others'."""
    try:
        return {"name": writer["name"], "attempts": list(attempts(writer, request))}
    except Exception as error:  # becomes that writer's row
        return {"name": writer["name"], "error": f"{type(error).__name__}: {error}"}


def work(request: dict[str, Any]) -> list[dict[str, Any]]:
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    return [told(writer, request) for writer in request["writers"]]


# How training changes the state of a saver in place: every update adds 1 to every number.


Update = Callable[[], object]


def torch_in_place(saver: Any) -> Update:
    torch: Any = importlib.import_module("torch")

    def update() -> None:
        with torch.no_grad():
            for tensor in saver.tensors.values():
                tensor.add_(1.0)

    return update


def torch_optimizer(saver: Any) -> Update:
    """The attached one, as a training has it."""
    torch: Any = importlib.import_module("torch")
    saver.optimizer.param_groups[0]["lr"] = 1.0
    for tensor in saver.tensors.values():
        tensor.grad = torch.full_like(tensor, -1.0)
    step: Update = saver.optimizer.step
    return step


def torch_backward(saver: Any) -> Update:
    update: Update = saver.backward
    return update


def chainer_in_place(saver: Any) -> Update:
    def update() -> None:
        for array in saver.arrays.values():
            numpy.add(array, 1.0, out=array)

    return update


def chainer_optimizer(saver: Any) -> Update:
    saver.optimizer.lr = 1.0
    for parameter in saver.link.params():
        parameter.grad = numpy.full_like(parameter.array, -1.0)
    update: Update = saver.optimizer.update
    return update


def tensorflow_in_place(saver: Any) -> Update:
    library = saver.library
    ones = [library.ones_like(variable) for variable in saver.variables.values()]

    def update() -> None:
        for variable, one in zip(saver.variables.values(), ones, strict=True):
            variable.assign_add(one)

    return update


def jax_donating(saver: Any) -> Update:
    """Arrays are immutable; with donation XLA writes to the same memory where it may."""
    added = saver.jax.jit(lambda array: array + 1.0, donate_argnums=0)

    def update() -> None:
        for name, array in saver.arrays.items():
            saver.arrays[name] = added(array)
        saver.jax.block_until_ready(saver.arrays)

    return update


UPDATES: dict[str, Callable[[Any], Update]] = {
    one.__name__: one
    for one in (
        torch_in_place, torch_optimizer, torch_backward, chainer_in_place, chainer_optimizer,
        tensorflow_in_place, jax_donating,
    )
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
