"""One small network, NT3 with few genes, in four frameworks with the same weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import jax
import numpy as np
import torch
from flax import nnx
from numpy.typing import NDArray

from examples.networks.candle import FILTERS, NT3, flat_features
from lab.networks import chainer_workloads as chainer_window
from lab.networks import jax_workloads as jax_window
from lab.networks import keras_workloads as keras_window

GENES, HIDDEN, ROWS = 228, 200, 3
LENGTH = flat_features(GENES) // FILTERS
TIMES = 16.0  # as much as rounding has changed is still equal
LAYERS = ("conv1", "conv2", "dense1", "dense2", "dense3")
KERNEL, BIAS = "kernel", "bias"

Array = NDArray[Any]
Steps = list[list[Any]]  # of NumPy, as in the maps of `deepfreeze import`
TURN: Steps = [["transpose", 2, 1, 0]]
SWAP: Steps = [["transpose", 1, 0]]


def to_channels_last(layer: str) -> Steps:
    """From torch's order of dimensions; the first dense layer sees channels, then places."""
    if layer == "dense1":
        turned = ["transpose", 2, 1, 0]
        return [["reshape", HIDDEN, FILTERS, LENGTH], turned, ["reshape", -1, HIDDEN]]
    return TURN if layer.startswith("conv") else SWAP


def to_channels_first(layer: str) -> Steps:
    if layer == "dense1":
        turned = ["transpose", 2, 1, 0]
        return [["reshape", LENGTH, FILTERS, HIDDEN], turned, ["reshape", HIDDEN, -1]]
    return TURN if layer.startswith("conv") else SWAP


def carried_out(array: Array, steps: Steps) -> Array:
    for name, *numbers in steps:
        array = array.reshape(numbers) if name == "reshape" else array.transpose(numbers)
    return np.ascontiguousarray(array)


def steps_between(old: Network, new: Network, layer: str, part: str) -> Steps:
    if part == BIAS or old.channels_last == new.channels_last:
        return []
    return to_channels_last(layer) if new.channels_last else to_channels_first(layer)


class Network(ABC):
    """Of one framework; `live()` is what a reader fills, by the framework's own names."""

    framework: str
    channels_last: bool
    network: Any
    parts: ClassVar[dict[str, str]]  # kernel and bias, as the framework calls them
    separator = "."

    def name(self, layer: str, part: str) -> str:
        return f"{layer}{self.separator}{self.parts[part]}"

    def names(self) -> dict[str, tuple[str, str]]:
        return {self.name(layer, part): (layer, part) for layer in LAYERS for part in self.parts}

    @abstractmethod
    def live(self) -> dict[str, Any]:
        """Variables or arrays."""

    def restorable(self) -> dict[str, Any]:
        """What takes the arrays of a map."""
        return self.live()

    @abstractmethod
    def fill(self, arrays: dict[str, Array]) -> None:
        """Into the network; by the names of live()."""

    @abstractmethod
    def forward(self, x: Array) -> Array:
        """In evaluation, of rows with channels first."""

    def arrays(self) -> dict[str, Array]:
        return {name: np.array(each) for name, each in self.live().items()}

    def fill_from(self, other: Network, arrays: dict[str, Array]) -> None:
        """By the map that a person writes: names and order of dimensions."""
        self.fill({
            name: carried_out(arrays[other.name(*part)], steps_between(other, self, *part))
            for name, part in self.names().items()
        })  # fmt: skip

    def empty(self) -> None:
        self.fill({name: np.zeros_like(array) for name, array in self.arrays().items()})


class Torch(Network):
    framework, channels_last = "pytorch", False
    parts: ClassVar = {KERNEL: "weight", BIAS: "bias"}

    def __init__(self) -> None:
        self.network = NT3(GENES).eval()

    def live(self) -> dict[str, Any]:
        return dict(self.network.state_dict())

    def restorable(self) -> dict[str, Any]:
        """A map gives arrays, which no tensor takes; its NumPy view does."""
        return {name: one.numpy() for name, one in self.live().items()}

    def fill(self, arrays: dict[str, Array]) -> None:
        self.network.load_state_dict({name: torch.tensor(one) for name, one in arrays.items()})

    def forward(self, x: Array) -> Array:
        with torch.no_grad():
            return np.asarray(self.network(torch.tensor(x)))


class Keras(Network):
    framework, channels_last = "tensorflow", True
    parts: ClassVar = {KERNEL: "kernel", BIAS: "bias"}
    separator = "/"

    def __init__(self) -> None:
        self.network = keras_window.nt3(GENES)

    def live(self) -> dict[str, Any]:
        layers = [each for each in self.network.layers if each.weights]
        return {
            self.name(name, part): variable
            for name, layer in zip(LAYERS, layers, strict=True)
            for part, variable in zip(self.parts, layer.weights, strict=True)
        }

    def fill(self, arrays: dict[str, Array]) -> None:
        for name, variable in self.live().items():
            variable.assign(arrays[name])

    def forward(self, x: Array) -> Array:
        return np.asarray(self.network(x.transpose(0, 2, 1), training=False))


class Chainer(Network):
    framework, channels_last = "chainer", False
    parts: ClassVar = {KERNEL: "W", BIAS: "b"}
    separator = "/"

    def __init__(self) -> None:
        self.network = chainer_window.NT3(GENES)

    def live(self) -> dict[str, Any]:
        return {name[1:]: each.array for name, each in self.network.namedparams()}

    def fill(self, arrays: dict[str, Array]) -> None:
        for name, array in self.live().items():
            array[...] = arrays[name]

    def forward(self, x: Array) -> Array:
        chainer = chainer_window.chainer
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            return np.asarray(self.network(x).array)


class Flax(Network):
    framework, channels_last = "jax", True
    parts: ClassVar = {KERNEL: "kernel", BIAS: "bias"}

    def __init__(self) -> None:
        self.network = jax_window.NT3(GENES, nnx.Rngs(0))
        self.network.eval()

    def variables(self) -> dict[str, Any]:
        flat = nnx.to_flat_state(nnx.state(self.network, nnx.Param))
        return {".".join(map(str, path)): each for path, each in flat}

    def live(self) -> dict[str, Any]:
        return {name: each.get_value() for name, each in self.variables().items()}

    def fill(self, arrays: dict[str, Array]) -> None:
        state = nnx.state(self.network, nnx.Param)
        for path, each in nnx.to_flat_state(state):
            each.set_value(jax.numpy.asarray(arrays[".".join(map(str, path))]))
        nnx.update(self.network, state)

    def forward(self, x: Array) -> Array:
        return np.asarray(self.network(x.transpose(0, 2, 1)))


NETWORKS: tuple[type[Network], ...] = (Torch, Keras, Chainer, Flax)


def tolerance(weights: Torch, x: Array) -> float:
    """What rounding to float32 may change of an output, where others add in other orders.

    TIMES what it has changed of these outputs: measured against the same network in float64. A
    bound by the absolute values of all products is no use here: it is above the outputs.
    """
    exact = NT3(GENES).eval().double()
    exact.load_state_dict(weights.network.state_dict())
    with torch.no_grad():
        wanted = np.asarray(exact(torch.tensor(x).double()))
    rounded = float(np.abs(weights.forward(x) - wanted).max())
    return TIMES * max(rounded, float(np.spacing(np.float32(np.abs(wanted).max()))))
