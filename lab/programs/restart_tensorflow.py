"""Keras on TensorFlow: a loop of its own or fit(), and their writers."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import deepfreeze as df
from deepfreeze.keras import DeepFreezeCallback
from lab.programs.restart_job import (
    BATCHES,
    DATA,
    FIT,
    INTERVAL,
    MODEL,
    OPTIMIZER,
    OTHER_PIPELINE,
    RNG,
    STEPS,
    Job,
)
from lab.programs.restart_protocol import (
    Array,
    ByDeepFreeze,
    Entries,
    Recorder,
    Stepped,
    Task,
    Voice,
    newest,
    rows,
    run_loop,
)

PACKAGES = ("tensorflow-cpu", "keras", "h5py", "deepfreeze-checkpoint")
EPOCHS = STEPS // BATCHES


def new_model(dropout: float) -> Any:
    """The rate follows from how often the optimizer has updated: a scheduler has no state."""
    layers = [
        keras.layers.Input((Task.WIDTH,)), keras.layers.Dense(Task.HIDDEN),
        keras.layers.BatchNormalization(), keras.layers.ReLU(),
    ]  # fmt: skip
    if dropout:
        layers.append(keras.layers.Dropout(dropout))
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    rate = keras.optimizers.schedules.ExponentialDecay(Task.RATE, 1, Task.DECAY)
    model.compile(keras.optimizers.SGD(rate, Task.MOMENTUM), keras.losses.MeanSquaredError())
    return model


def seed_states(model: Any) -> list[Any]:
    drawing = [each for each in model.layers if hasattr(each, "seed_generator")]
    return [each.seed_generator.state for each in drawing]


def bare(variables: list[Any]) -> list[Any]:
    """TensorFlow's own within Keras's."""
    return [each.value for each in variables]


def entries(model: Any) -> Entries:
    """By their places: names of layers count on in a process, and differ in a loaded model."""
    optimizer = model.optimizer
    yield f"{OPTIMIZER}/iterations", np.array(optimizer.iterations)
    slots = [each for each in optimizer.variables if each is not optimizer.iterations]
    parts = {RNG: seed_states(model), OPTIMIZER: slots, MODEL: model.weights}
    for component, variables in parts.items():
        for index, each in enumerate(variables):
            yield f"{component}/{index}", np.array(each)


class Own:
    """A loop of its own, over a tf.data iterator."""

    def __init__(self, seed: int, data_seed: int, pipeline_seed: int) -> None:
        """The seeds of a pipeline are the program's: its iterator's position has none."""
        self.x, self.y = map(tf.constant, rows(data_seed))
        tf.random.set_seed(pipeline_seed)
        numbers = tf.data.Dataset.range(Task.ROWS).shuffle(Task.ROWS, pipeline_seed)
        self.iterator = iter(numbers.repeat().batch(Task.BATCH))
        keras.utils.set_random_seed(seed)
        self.model = new_model(Task.DROPOUT)
        self.last: Any = None
        self.step: Any = None

    def train_step(self) -> float:
        """Traced anew where the model is another one."""
        if self.step is None:
            self.model.optimizer.build(self.model.trainable_variables)
            self.step = tf.function(self._step)
        self.last = next(self.iterator)
        return float(self.step(self.last))

    def _step(self, numbers: Any) -> Any:
        model = self.model
        x, y = tf.gather(self.x, numbers), tf.gather(self.y, numbers)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    def entries(self) -> Entries:
        return entries(self.model)

    def batch(self) -> Array:
        return np.array(self.last)

    def skip(self) -> None:
        next(self.iterator)


class Weights(Stepped):
    """save_weights(): the new process's optimizer is built only if its part is wanted."""

    def save(self, step: int) -> None:
        self.training.model.save_weights(self.job.place / f"step-{step}.weights.h5")

    def restore(self) -> int:
        step, path = newest(self.job.place, "step-*.weights.h5")
        model = self.training.model
        if OPTIMIZER in self.job.saved:
            model.optimizer.build(model.trainable_variables)
        model.load_weights(path)
        return step


class Model(Stepped):
    """save(): the new process has the model that the file describes."""

    suffix = "keras"

    def save(self, step: int) -> None:
        self.training.model.save(self.job.place / f"step-{step}.{self.suffix}")

    def restore(self) -> int:
        step, path = newest(self.job.place, f"step-*.{self.suffix}")
        self.training.model = keras.saving.load_model(path)
        return step


class LegacyModel(Model):
    suffix = "h5"


class Checkpoint(Stepped):
    """tf.train.Checkpoint by its manager."""

    def __init__(self, training: Own, job: Job) -> None:
        super().__init__(training, job)
        model = training.model
        model.optimizer.build(model.trainable_variables)
        parts = {
            MODEL: model if OPTIMIZER in job.saved else bare(model.weights),  # it has its own
            OPTIMIZER: model.optimizer, DATA: training.iterator, RNG: bare(seed_states(model)),
        }  # fmt: skip
        kept = {name: part for name, part in parts.items() if name in job.saved}
        self.manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(**kept), str(job.place / "run"), max_to_keep=3
        )

    def save(self, step: int) -> None:
        self.manager.save(checkpoint_number=step)

    def restore(self) -> int:
        path = self.manager.latest_checkpoint
        if path is None:
            raise LookupError("the manager knows no checkpoint")
        self.manager.checkpoint.restore(path).assert_existing_objects_matched()
        return int(path.rpartition("-")[2])


class DeepFreeze(ByDeepFreeze):
    def __init__(self, training: Own, job: Job) -> None:
        training.model.optimizer.build(training.model.trainable_variables)
        parts = {MODEL: training.model, RNG: df.RNG(), DATA: training.iterator}
        super().__init__(training, job, parts)


class Told(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    """Tells each step that was trained; comes last, behind what saves."""

    def __init__(self, job: Job, voice: Voice, settle: Any) -> None:
        super().__init__()
        self.job = job
        self.settle = settle
        self.recorder = Recorder(job, voice, lambda: entries(self.model))
        self.epoch = 0
        self.known = 0

    @property
    def step(self) -> int:
        return int(self.model.optimizer.iterations)

    def on_train_begin(self, logs: Any = None) -> None:
        self.known = self.step
        if self.job.resumes:
            if not self.known:
                raise LookupError("no checkpoint is there")
            self.recorder.restored(self.known)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.step == self.known:
            return  # passed over: it was trained on before
        self.known = self.step
        if self.known <= STEPS:
            self.recorder.note(self.known, logs["loss"], (self.epoch, batch), self.settle)


def fit(job: Job, data_seed: int, voice: Voice) -> None:
    """The rows come in one order in each epoch: fit()'s own shuffling can't be restored."""
    keras.utils.set_random_seed(job.seed)
    model = new_model(Task.DROPOUT if job.variant == FIT else 0.0)
    model.optimizer.build(model.trainable_variables)
    x, y = rows(data_seed)
    callbacks: list[Any] = []
    settle: Any = int
    if job.writer:
        callback, settle = CALLBACKS[job.writer](job)
        callbacks.append(callback)
    told = Told(job, voice, settle)
    model.fit(x, y, Task.BATCH, EPOCHS, shuffle=False, verbose=0, callbacks=[*callbacks, told])


def backup(job: Job, save_freq: Any = "epoch") -> tuple[Any, Any]:
    path = str(job.place / "backup")
    return keras.callbacks.BackupAndRestore(path, save_freq, delete_checkpoint=False), int


def callback(job: Job, mode: Any = "window") -> tuple[Any, Any]:
    every = df.every(steps=INTERVAL)
    checkpointer = df.Checkpointer(job.place / "run", every=every, profile="latency")
    return DeepFreezeCallback(checkpointer, mode=mode), checkpointer.wait


CALLBACKS: dict[str, Callable[[Job], tuple[Any, Any]]] = {
    "keras-backup": backup, "keras-backup-batches": partial(backup, save_freq=INTERVAL),
    "df-callback": callback, "df-callback-in-graph": partial(callback, mode="after_update"),
}  # fmt: skip
WRITERS = {
    "keras-weights": Weights, "keras": Model, "keras-legacy": LegacyModel,
    "tf-checkpoint": Checkpoint, "df": DeepFreeze,
}  # fmt: skip


def run(job: Job, data_seed: int, voice: Voice) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(job.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()
    if job.variant:
        fit(job, data_seed, voice)
        return
    pipeline_seed = job.seed if job.fault == OTHER_PIPELINE else data_seed
    training = Own(job.seed, data_seed, pipeline_seed)
    run_loop(job, voice, training, WRITERS[job.writer](training, job) if job.writer else None)
