"""TensorFlow's checkpoints by their manager, its SavedModel, and Keras's formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.faults.state import OLDER
from lab.writers import framework_savers, keras_savers, tensorflow_savers
from lab.writers.deepfreeze_victim import DeepFreezeVictim
from lab.writers.saver import Pending
from lab.writers.victim import OnePath, Stepped, Victim

KEEP = 3  # as in the guide; the manager has no default


class DeepFreeze(DeepFreezeVictim, framework_savers.DeepFreezeTensorFlow):
    """A dict of variables."""


class DeepFreezeKeras(DeepFreezeVictim, framework_savers.DeepFreezeKeras):
    """A dict of Keras's variables."""


class TensorFlowManager(tensorflow_savers.TensorFlow, Victim):
    """tf.train.CheckpointManager."""

    def manager(self, directory: Path) -> Any:
        return self.library.train.CheckpointManager(self.checkpoint, str(directory), KEEP)

    def open(self, directory: Path) -> None:
        self.saving = self.manager(directory)

    def save(self, directory: Path, step: int) -> Pending:
        self.saving.save(checkpoint_number=step)
        return Pending()

    def load_newest(self, directory: Path) -> list[int]:
        newest = self.manager(directory).latest_checkpoint
        if newest is None:
            raise LookupError("the manager knows no checkpoint")
        self.read(newest)
        return []

    def load_older(self, directory: Path) -> None:
        self.read(str(directory / f"ckpt-{OLDER}"))

    def read(self, prefix: str) -> None:
        self.checkpoint.restore(prefix).assert_consumed()


class TensorFlowManagerAsync(TensorFlowManager):
    """The same with enable_async, awaited."""

    def save(self, directory: Path, step: int) -> Pending:
        options = self.library.train.CheckpointOptions(enable_async=True)
        self.saving.save(checkpoint_number=step, options=options)
        return Pending(committed=self.checkpoint.sync)


class SavedModel(Stepped, tensorflow_savers.SavedModel):
    """A directory for each version, as TensorFlow Serving has it."""


class KerasWeights(OnePath, keras_savers.KerasWeights):
    """save_weights and load_weights."""

    filename = "latest.weights.h5"


class KerasModel(OnePath, keras_savers.KerasModel):
    """model.save and load_model."""

    filename = "latest.keras"


class KerasLegacy(OnePath, keras_savers.KerasLegacy):
    """The same to HDF5."""

    filename = "latest.h5"


class KerasWeightsStepped(Stepped, keras_savers.KerasWeights):
    """As ModelCheckpoint does with the epoch in its path."""

    def place(self, directory: Path, step: int) -> Path:
        return keras_savers.KerasWeights.place(self, directory, step)
