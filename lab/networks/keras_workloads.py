"""NT3, ResNet-50 and an MLP in Keras on TensorFlow, and what these bring along: see window.py."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from examples.networks.candle import FILTERS, GENES_FULL
from lab.networks.data import Batch, batches
from lab.networks.torch_networks import MLP_CLASSES, MLP_INPUTS, MLP_WIDTHS
from lab.networks.torch_workloads import GENES_FEW
from lab.writers.loop import Saver
from lab.writers.loop_frameworks import KERAS

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras


def nt3(genes: int = GENES_FULL) -> Any:
    """As examples/networks/candle.py describes it."""
    layers = keras.layers
    model = keras.Sequential([
        layers.Input((genes, 1)),
        layers.Conv1D(FILTERS, 20, activation="relu"),
        layers.Conv1D(FILTERS, 10, activation="relu"),
        layers.MaxPooling1D(10),
        layers.Flatten(),
        layers.Dense(200, activation="relu"),
        layers.Dropout(0.1),
        layers.Dense(20, activation="relu"),
        layers.Dropout(0.1),
        layers.Dense(2),
    ])  # fmt: skip
    return compiled(model, keras.optimizers.SGD(1e-3))


def mlp() -> Any:
    """As torch_networks.py has it."""
    layers = keras.layers
    model = keras.Sequential([layers.Input((MLP_INPUTS,))])
    for width in MLP_WIDTHS:
        model.add(layers.Dense(width))
        model.add(layers.BatchNormalization())
        model.add(layers.ReLU())
        model.add(layers.Dropout(0.1))
    model.add(layers.Dense(MLP_CLASSES))
    return compiled(model, keras.optimizers.Adam(1e-3))


def resnet50() -> Any:
    """Keras's own, without its weights."""
    model = keras.applications.ResNet50(
        weights=None, input_shape=(64, 64, 3), classes=1000, classifier_activation=None
    )
    return compiled(model, keras.optimizers.Adam(1e-3))


def compiled(model: Any, optimizer: Any) -> Any:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    return model


class KerasTraining:
    """A compiled model, trained batch by batch. TensorFlow's variables need no fence."""

    attached = ()

    def __init__(self, model: Any, batches: list[Batch]) -> None:
        self.model = model
        self.batches = batches
        self.state = {"model": model}

    def train_step(self, step: int, hooks: Saver) -> float:
        hooks.before_update()
        return float(self.model.train_on_batch(*self.batches[step % len(self.batches)]))

    def tensors(self) -> list[np.ndarray[Any, Any]]:
        return [np.array(each) for each in self.variables()]

    def variables(self) -> list[Any]:
        return variables_of(self.model)

    def release(self) -> None:
        """Nothing is held."""


def variables_of(model: Any) -> list[Any]:
    return [*model.variables, *model.optimizer.variables, *model.metrics_variables]


@dataclass
class KerasWorkload:
    """Makes its model once: tracing it takes longer than a segment."""

    title: str
    steps: int
    make: Callable[[], Any]
    shape: tuple[int, ...]
    classes: int
    made: dict[int, tuple[Any, list[np.ndarray[Any, Any]]]] = field(default_factory=dict)

    def build(self, seed: int, *, in_backward: bool) -> KerasTraining:
        drawn = batches(self.shape, self.classes, seed)
        if seed not in self.made:
            keras.utils.set_random_seed(seed)
            model = self.make()
            model.optimizer.build(model.trainable_variables)
            values = [np.array(each) for each in variables_of(model)]
            model.train_on_batch(*drawn[0])
            self.made[seed] = model, values
        model, values = self.made[seed]
        for variable, value in zip(variables_of(model), values, strict=False):
            variable.assign(value)
        model.reset_metrics()
        return KerasTraining(model, drawn)


WORKLOADS = {
    "resnet50": KerasWorkload(
        "ResNet-50 in Keras on TensorFlow, Adam, batch 16 of 64x64x3",
        40, resnet50, (16, 64, 64, 3), 1000,
    ),
    "nt3": KerasWorkload(
        "CANDLE NT3 in Keras on TensorFlow, 60,483 genes, SGD, batch 5",
        12, nt3, (5, GENES_FULL, 1), 2,
    ),
    "nt3-1k": KerasWorkload(
        "CANDLE NT3 in Keras on TensorFlow, 1,024 genes, SGD, batch 20",
        40, functools.partial(nt3, GENES_FEW), (20, GENES_FEW, 1), 2,
    ),
    "mlp": KerasWorkload(
        "MLP with batch norm and dropout in Keras on TensorFlow, Adam, batch 32",
        40, mlp, (32, MLP_INPUTS), MLP_CLASSES,
    ),
    "tiny": KerasWorkload(
        "smoke size: NT3 of 600 genes", 4, functools.partial(nt3, 600), (5, 600, 1), 2
    ),
}  # fmt: skip
SAVERS = KERAS
