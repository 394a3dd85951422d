"""A rank of MultiWorkerMirroredStrategy on the loopback, and the ways in which its ranks save.

Keras 3.15 itself does not train under that strategy (train_on_batch fails while it is traced): its
networks and optimizers do, in the loop of TensorFlow's own guide.
"""

import importlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import deepfreeze as df
from lab.networks.data import Batch, batches
from lab.networks.keras_workloads import WORKLOADS, KerasTraining, KerasWorkload, variables_of
from lab.programs.scale_rank import be_rank, share_of
from lab.writers.loop import KEEP_LAST, Attached, Saver
from lab.writers.loop_frameworks import TfCheckpoint, TfCheckpointAsync
from lab.writers.loop_ranks import ByRankZero, EachAlone, Together

keras: Any = importlib.import_module("keras")  # as keras_window has set it up
tf: Any = importlib.import_module("tensorflow")
MEETING = "meeting"  # where DeepFreeze's ranks find each other, and ours


class WorkerJob:
    """The ranks that TF_CONFIG names; they meet in a directory."""

    def __init__(self, shared: Path) -> None:
        configuration = json.loads(os.environ["TF_CONFIG"])
        self.rank = int(configuration["task"]["index"])
        self.world_size = len(configuration["cluster"]["worker"])
        self.ranks = df.DirectoryRanks(
            shared / MEETING, rank=self.rank, world_size=self.world_size, job="study"
        )

    def gathered(self, value: Any) -> list[Any]:
        found = self.ranks.gather(json.dumps(value).encode())
        self.ranks.scatter([b""] * self.world_size if self.rank == 0 else [])
        return [json.loads(one) for one in found or [json.dumps(value).encode()] * self.world_size]


@cache
def strategy() -> Any:
    """Made before any other call of TensorFlow's."""
    return tf.distribute.MultiWorkerMirroredStrategy()


class MirroredTraining(KerasTraining):
    """Every worker has a replica and its own rows; gradients are averaged over all."""

    def __init__(
        self, model: Any, batches: list[Batch], step: Callable[..., Any], job: WorkerJob
    ) -> None:
        super().__init__(model, batches)
        self.step = step
        self.rank = job.rank
        self.ranks = job.ranks

    def train_step(self, step: int, hooks: Saver) -> float:
        hooks.before_update()
        return float(self.step(*self.batches[step % len(self.batches)]))


def step_of(model: Any) -> Callable[..., Any]:
    """Traced once."""
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def replica(x: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(wanted, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        context = tf.distribute.get_replica_context()
        mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        model.optimizer.apply(mean, model.trainable_variables)
        return loss

    def update(x: Any, wanted: Any) -> Any:
        return strategy().run(replica, (x, wanted))

    step: Callable[..., Any] = tf.function(update)
    return step


@dataclass
class MirroredWorkload:
    """Makes its model once: tracing it takes longer than a segment."""

    workload: KerasWorkload
    scaling: str
    job: WorkerJob
    made: dict[int, tuple[Any, Any, list[Any]]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.workload.title

    @property
    def steps(self) -> int:
        return self.workload.steps

    def build(self, seed: int, *, in_backward: bool) -> MirroredTraining:
        drawn = batches(self.workload.shape, self.workload.classes, seed)
        shared = share_of(drawn, self.scaling, self.job.rank, self.job.world_size)
        if seed not in self.made:
            self.made[seed] = self.make(seed)
        model, step, values = self.made[seed]
        for variable, value in zip(variables_of(model), values, strict=True):
            variable.assign(value)
        return MirroredTraining(model, shared, step, self.job)

    def make(self, seed: int) -> tuple[Any, Any, list[Any]]:
        keras.utils.set_random_seed(seed)
        with strategy().scope():
            model = without_metrics(self.workload.make())
            model.optimizer.build(model.trainable_variables)
        return model, step_of(model), [np.array(each) for each in variables_of(model)]


def without_metrics(compiled: Any) -> Any:
    """To read the sums of Keras's metrics all workers must call: none could save them alone."""
    model = keras.Sequential(compiled.layers)
    model.optimizer = compiled.optimizer
    return model


class RankZero(ByRankZero, TfCheckpoint):
    title = "tf.train.Checkpoint by the chief"


class AllWrite(EachAlone, TfCheckpoint):
    """As the guide has it, who is not the chief writes, too, what is then thrown away."""

    name = "tf-checkpoint-each"
    title = "tf.train.Checkpoint by each worker"


class RankZeroAsync(ByRankZero, TfCheckpointAsync):
    title = "tf.train.Checkpoint by the chief, async, of bare variables"


class AttachedTogether(Together, Attached):
    title = "DeepFreeze, by all workers, over files"

    def open(self) -> df.Checkpointer:
        ranks = self.training.ranks
        return df.Checkpointer(self.directory, keep=df.keep(last=KEEP_LAST), ranks=ranks)


SAVERS: dict[str, type[Saver]] = {
    "rank0": RankZero,
    "all-write": AllWrite,
    "asynchronous": RankZeroAsync,
    "deepfreeze": AttachedTogether,
}


def main(arguments: dict[str, Any]) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    strategy()
    job = WorkerJob(Path(arguments["directory"]))
    workload = MirroredWorkload(WORKLOADS[arguments["workload"]], arguments["scaling"], job)
    be_rank(arguments, job, workload, SAVERS)
