"""The savers that come with each framework other than torch, beside a training."""

from typing import Any

from lab.writers import chainer_savers, jax_savers, tensorflow_savers
from lab.writers.loop import Attached, AttachedLatency
from lab.writers.loop_peers import Peer

OURS = (Attached, AttachedLatency)


class Snapshot(Peer):
    """Chainer's writer in the training's thread."""

    name = "snapshot"
    title = "snapshot, not compressed"
    synced = "nothing"
    kind = chainer_savers.ChainerSimpleWriter

    def live(self, step: int) -> None:
        self.writer.link = self.training


class ThreadSnapshot(Snapshot):
    """In a thread, from arrays that training goes on to change: its files belong to no step."""

    name = "snapshot-thread"
    title = "snapshot, ThreadWriter, not compressed; mixes steps"
    kind = chainer_savers.ChainerThreadWriter
    beside = True


class Orbax(Peer):
    """Checkpointer: in the training's thread."""

    name = "orbax"
    title = "Orbax"
    synced = "nothing"
    kind = jax_savers.OrbaxTree
    marker = "_CHECKPOINT_METADATA"

    def live(self, step: int) -> None:
        self.writer.arrays = self.training.arrays()


class OrbaxAsync(Orbax):
    """AsyncCheckpointer: returns once the arrays are on the host, where they are."""

    name = "orbax-async"
    title = "Orbax, async"
    synced = "files, no directory"
    kind = jax_savers.OrbaxTreeAsync
    beside = True


class OrbaxFiles(OrbaxAsync):
    """With a file for each array."""

    name = "orbax-async-files"
    title = "Orbax, async, without OCDBT"
    kind = jax_savers.OrbaxFilesAsync


class ModelSave(Peer):
    """model.save(), in Keras's own format."""

    name = "keras-save"
    title = "model.save(.keras)"
    synced = "nothing"
    kind = tensorflow_savers.KerasModel

    def live(self, step: int) -> None:
        self.writer.model = self.training.model


class TfCheckpoint(Peer):
    """tf.train.Checkpoint in the training's thread."""

    name = "tf-checkpoint"
    title = "tf.train.Checkpoint"
    synced = "nothing"
    kind = tensorflow_savers.TensorFlow
    marker = "checkpoint.index"

    def live(self, step: int) -> None:
        model: Any = self.training.model
        made = self.writer.library.train.Checkpoint(model=model, optimizer=model.optimizer)
        self.writer.checkpoint = made


class TfCheckpointAsync(TfCheckpoint):
    """The same beside training, from a copy that it makes first; of the variables within Keras's.

    Those of Keras 3.15 themselves are refused: tf.Variable(tf.Variable) while it copies.
    """

    name = "tf-checkpoint-async"
    title = "tf.train.Checkpoint, async, of bare variables"
    kind = tensorflow_savers.TensorFlowAsync
    beside = True

    def make_writer(self) -> Any:
        made: Any = super().make_writer()
        bare = [each._value for each in self.training.variables()]
        made.checkpoint = made.library.train.Checkpoint(variables=bare)
        return made

    def live(self, step: int) -> None:
        """One checkpoint for all saves has the variables."""


CHAINER = (*OURS, Snapshot, ThreadSnapshot)
JAX = (*OURS, Orbax, OrbaxAsync, OrbaxFiles)
KERAS = (*OURS, ModelSave, TfCheckpoint, TfCheckpointAsync)
