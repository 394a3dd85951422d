"""DeepFreeze over the state of TensorFlow, Keras, Chainer and JAX, as docs/frameworks say.

Where nothing is attached, save() takes references to buffers that the framework does not write
again (TensorFlow, Keras, JAX), or copies (Chainer).
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy

from lab.networks.layout import TensorSpec
from lab.writers.chainer_savers import ChainerStored
from lab.writers.deepfreeze_saver import DeepFreezeSaver
from lab.writers.jax_savers import Arrays
from lab.writers.tensorflow_savers import Variables


class DeepFreezeTensorFlow(DeepFreezeSaver, Variables):
    def state(self) -> dict[str, Any]:
        return self.variables


class DeepFreezeTensorFlowLatency(DeepFreezeTensorFlow):
    """There is nothing to attach."""

    profile = "latency"


class DeepFreezeKeras(DeepFreezeTensorFlow):
    """Keras's variables, on TensorFlow."""

    def variable(self, spec: TensorSpec) -> Any:
        keras: Any = importlib.import_module("keras")
        zeros = numpy.zeros(spec.shape, spec.dtype)
        return keras.Variable(zeros, dtype=spec.dtype, trainable=False)


class DeepFreezeKerasLatency(DeepFreezeKeras):
    """There is nothing to attach."""

    profile = "latency"


class DeepFreezeChainer(DeepFreezeSaver, ChainerStored):
    def state(self) -> Any:
        return self.link


class DeepFreezeChainerLatency(DeepFreezeChainer):
    """The link's optimizer is attached: in the window, with no training beside it."""

    profile = "latency"

    def build(self) -> None:
        super().build()
        self.optimizer = self.chainer.optimizers.SGD().setup(self.link)

    def attached(self) -> list[Any]:
        return [self.optimizer]


class DeepFreezeJax(DeepFreezeSaver, Arrays):
    def state(self) -> dict[str, Any]:
        return self.arrays


class DeepFreezeJaxLatency(DeepFreezeJax):
    """There is nothing to attach."""

    profile = "latency"
