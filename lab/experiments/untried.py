"""Writers and questions that the experiments with faults do not try, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator

from lab.measure.case import Case, refusing
from lab.measure.row import Row
from lab.networks.asked import ABSENT
from lab.writers.menu import SAVERS

SECONDS = 0.01
AS_SAVED_HERE = "saves as {other} does, which is tried: no victim of the torture is made of it"
BESIDE = (
    "its files are those of {other}, which is tried; what saving beside the training adds is not"
)
WRITERS = {  # of lab/writers that no victim of the torture is made of
    "df-quarter": AS_SAVED_HERE.format(other="DeepFreeze, with a smaller arena,"),
    "df-jax-latency": BESIDE.format(other="DeepFreeze, JAX"),
    "df-tensorflow-latency": BESIDE.format(other="DeepFreeze, TensorFlow"),
    "df-keras-latency": BESIDE.format(other="DeepFreeze, Keras"),
    "df-chainer-latency": BESIDE.format(other="DeepFreeze, Chainer"),
    "dcp-async-reused": BESIDE.format(other="dcp.async_save"),
    "torchsnapshot-async": BESIDE.format(other="torchsnapshot"),
    "torch-checkpointing": BESIDE.format(other="torch_checkpointing sync, buffered"),
    "orbax-async": "Orbax CheckpointManager, which is tried, saves by it: as it comes, and awaited",
    "chainer-simple": "Chainer snapshot, which is tried, saves by it as it comes",
    "fastpersist": "its extension takes minutes to compile",
}


def writers(experiment: str) -> Iterator[Case]:
    for name, why in WRITERS.items():
        entry = SAVERS[name]
        about: Row = {"framework": entry.framework, "writer": name, "title": entry.title}
        yield Case(experiment, f"left out {name}", SECONDS, about, refusing(why))


def questions(experiment: str, asked: dict[str, str]) -> Iterator[Case]:
    """What is about no one writer: it has no line in a table."""
    for title, why in asked.items():
        about: Row = {"component": title, "title": title}
        yield Case(experiment, ABSENT + title, SECONDS, about, refusing(why))
