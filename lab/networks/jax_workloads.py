"""NT3, ResNet-50 and an MLP in JAX (Flax NNX, Optax)."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from examples.networks.candle import FILTERS, GENES_FULL
from lab.networks.data import Batch, batches
from lab.networks.torch_networks import MLP_CLASSES, MLP_INPUTS, MLP_WIDTHS
from lab.networks.torch_workloads import GENES_FEW
from lab.writers.loop import Saver
from lab.writers.loop_frameworks import JAX

ADAM, SGD = optax.adam(1e-3), optax.sgd(1e-3)  # compiled for once


class NT3(nnx.Module):  # type: ignore[misc, unused-ignore]
    """As examples/networks/candle.py describes it."""

    def __init__(self, genes: int, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(1, FILTERS, (20,), padding="VALID", rngs=rngs)
        self.conv2 = nnx.Conv(FILTERS, FILTERS, (10,), padding="VALID", rngs=rngs)
        self.dense1 = nnx.Linear((genes - 28) // 10 * FILTERS, 200, rngs=rngs)
        self.dense2 = nnx.Linear(200, 20, rngs=rngs)
        self.dense3 = nnx.Linear(20, 2, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.relu(self.conv2(nnx.relu(self.conv1(x))))
        x = nnx.max_pool(x, (10,), (10,)).reshape(x.shape[0], -1)
        x = self.dropout(nnx.relu(self.dense1(x)))
        return self.dense3(self.dropout(nnx.relu(self.dense2(x))))


class MLP(nnx.Module):  # type: ignore[misc, unused-ignore]
    """As torch_networks.py has it."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        sizes = pairwise((MLP_INPUTS, *MLP_WIDTHS))
        self.hidden = nnx.List([nnx.Linear(*each, rngs=rngs) for each in sizes])
        self.norms = nnx.List([nnx.BatchNorm(width, rngs=rngs) for width in MLP_WIDTHS])
        self.out = nnx.Linear(MLP_WIDTHS[-1], MLP_CLASSES, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        for dense, norm in zip(self.hidden, self.norms, strict=True):
            x = self.dropout(nnx.relu(norm(dense(x))))
        return self.out(x)


def conv(inputs: int, outputs: int, size: int, stride: int, rngs: nnx.Rngs) -> nnx.Conv:
    padding = [(size // 2, size // 2)] * 2  # as torch's: "SAME" pads one side more
    return nnx.Conv(
        inputs, outputs, (size, size), stride, padding=padding, use_bias=False, rngs=rngs
    )


class Bottleneck(nnx.Module):  # type: ignore[misc, unused-ignore]
    """As examples/networks/resnet.py has it."""

    def __init__(self, inputs: int, width: int, stride: int, rngs: nnx.Rngs) -> None:
        outputs = 4 * width
        self.conv1 = conv(inputs, width, 1, 1, rngs)
        self.bn1 = nnx.BatchNorm(width, rngs=rngs)
        self.conv2 = conv(width, width, 3, stride, rngs)
        self.bn2 = nnx.BatchNorm(width, rngs=rngs)
        self.conv3 = conv(width, outputs, 1, 1, rngs)
        self.bn3 = nnx.BatchNorm(outputs, rngs=rngs)
        self.projects = stride != 1 or inputs != outputs
        if self.projects:
            self.shortcut = conv(inputs, outputs, 1, stride, rngs)
            self.shortcut_bn = nnx.BatchNorm(outputs, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        kept = self.shortcut_bn(self.shortcut(x)) if self.projects else x
        x = nnx.relu(self.bn1(self.conv1(x)))
        x = nnx.relu(self.bn2(self.conv2(x)))
        return nnx.relu(self.bn3(self.conv3(x)) + kept)


class ResNet50(nnx.Module):  # type: ignore[misc, unused-ignore]
    """Stem, sixteen bottlenecks, average pool, classifier."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv1 = conv(3, 64, 7, 2, rngs)
        self.bn1 = nnx.BatchNorm(64, rngs=rngs)
        blocks, inputs = [], 64
        for index, (width, count) in enumerate(zip((64, 128, 256, 512), (3, 4, 6, 3), strict=True)):
            for place in range(count):
                stride = 2 if index and not place else 1
                blocks.append(Bottleneck(inputs, width, stride, rngs))
                inputs = 4 * width
        self.blocks = nnx.List(blocks)
        self.fc = nnx.Linear(inputs, 1000, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.max_pool(nnx.relu(self.bn1(self.conv1(x))), (3, 3), (2, 2), [(1, 1)] * 2)
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((1, 2)))


@nnx.jit  # type: ignore[untyped-decorator, unused-ignore]
def update(model: Any, optimizer: Any, x: Any, wanted: Any) -> Any:
    def loss_of(model: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(model(x), wanted).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


class JaxTraining:
    """An NNX module and its optimizer. JAX's arrays need no fence."""

    attached = ()

    def __init__(self, model: Any, transform: Any, batches: Sequence[Batch]) -> None:
        self.model = model
        self.optimizer = nnx.Optimizer(model, transform, wrt=nnx.Param)
        self.batches = batches
        self.state = {"model": model, "optim": self.optimizer}

    def train_step(self, step: int, hooks: Saver) -> float:
        hooks.before_update()
        batch = self.batches[step % len(self.batches)]
        return float(update(self.model, self.optimizer, *batch))

    def arrays(self) -> Any:
        """What Orbax stores: it knows no typed keys, so of those their words."""
        state = nnx.to_pure_dict(nnx.state((self.model, self.optimizer)))
        return jax.tree.map(plain, state)

    def tensors(self) -> list[np.ndarray[Any, Any]]:
        return [np.array(each) for each in jax.tree.leaves(self.arrays())]

    def release(self) -> None:
        """Nothing is held."""


def plain(array: Any) -> Any:
    is_key = jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(array) if is_key else array


@dataclass(frozen=True)
class JaxWorkload:
    title: str
    steps: int
    make: Callable[[nnx.Rngs], Any]
    transform: Any
    shape: tuple[int, ...]
    classes: int

    def build(self, seed: int, *, in_backward: bool) -> JaxTraining:
        drawn = batches(self.shape, self.classes, seed)
        return JaxTraining(self.make(nnx.Rngs(seed)), self.transform, drawn)


NT3_SHAPE = (5, GENES_FULL, 1)
WORKLOADS = {
    "resnet50": JaxWorkload(
        "ResNet-50 in Flax, Adam, batch 16 of 64x64x3", 40, ResNet50, ADAM, (16, 64, 64, 3), 1000
    ),
    "nt3": JaxWorkload(
        "CANDLE NT3 in Flax, 60,483 genes, SGD, batch 5",
        12, functools.partial(NT3, GENES_FULL), SGD, NT3_SHAPE, 2,
    ),
    "nt3-1k": JaxWorkload(
        "CANDLE NT3 in Flax, 1,024 genes, SGD, batch 20",
        40, functools.partial(NT3, GENES_FEW), SGD, (20, GENES_FEW, 1), 2,
    ),
    "mlp": JaxWorkload(
        "MLP with batch norm and dropout in Flax, Adam, batch 32",
        40, MLP, ADAM, (32, MLP_INPUTS), MLP_CLASSES,
    ),
    "tiny": JaxWorkload(
        "smoke size: NT3 of 600 genes", 4, functools.partial(NT3, 600), SGD, (5, 600, 1), 2
    ),
}  # fmt: skip
SAVERS = JAX
