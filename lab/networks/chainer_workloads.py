"""NT3, ResNet-50 and an MLP in Chainer."""

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import Any

import numpy as np

from deepfreeze import chainer_compat
from examples.networks.candle import FILTERS, GENES_FULL
from lab.networks.data import Batch, batches
from lab.networks.torch_networks import MLP_CLASSES, MLP_INPUTS, MLP_WIDTHS
from lab.networks.torch_workloads import GENES_FEW
from lab.writers.loop import Saver
from lab.writers.loop_frameworks import CHAINER

chainer_compat.install()
chainer: Any = importlib.import_module("chainer")
F, L = chainer.functions, chainer.links
npz: Any = importlib.import_module("chainer.serializers.npz")


class NT3(chainer.Chain):  # type: ignore[misc]
    """As examples/networks/candle.py describes it."""

    def __init__(self, genes: int) -> None:
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution1D(1, FILTERS, 20)
            self.conv2 = L.Convolution1D(FILTERS, FILTERS, 10)
            self.dense1 = L.Linear((genes - 28) // 10 * FILTERS, 200)
            self.dense2 = L.Linear(200, 20)
            self.dense3 = L.Linear(20, 2)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = F.max_pooling_1d(x, 10, cover_all=False)
        x = F.dropout(F.relu(self.dense1(x)), 0.1)
        return self.dense3(F.dropout(F.relu(self.dense2(x)), 0.1))


class MLP(chainer.Chain):  # type: ignore[misc]
    """As torch_networks.py has it."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.hidden = chainer.ChainList(*starmap(L.Linear, pairwise((MLP_INPUTS, *MLP_WIDTHS))))
            self.norms = chainer.ChainList(*map(L.BatchNormalization, MLP_WIDTHS))
            self.out = L.Linear(MLP_WIDTHS[-1], MLP_CLASSES)

    def forward(self, x: Any) -> Any:
        for dense, norm in zip(self.hidden, self.norms, strict=True):
            x = F.dropout(F.relu(norm(dense(x))), 0.1)
        return self.out(x)


class ResNet50(chainer.Chain):  # type: ignore[misc]
    """Chainer's own, without its weights."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.layers = L.ResNet50Layers(pretrained_model=None)

    def forward(self, x: Any) -> Any:
        return self.layers(x, layers=["fc6"])["fc6"]


class ChainerTraining:
    """A link, its optimizer, and updates of both."""

    def __init__(self, link: Any, optimizer: Any, batches: list[Batch]) -> None:
        self.link = link
        self.optimizer = optimizer.setup(link)
        self.updates = self.optimizer  # what updates: another's, where several processes train
        self.batches = batches
        self.state = {"model": link, "optim": self.optimizer}
        self.attached = [self.optimizer]

    def train_step(self, step: int, hooks: Saver) -> float:
        losses = []

        def loss(x: Any, wanted: Any) -> Any:
            losses.append(F.softmax_cross_entropy(self.link(x), wanted))
            return losses[0]

        hooks.before_update()
        self.updates.update(loss, *self.batches[step % len(self.batches)])
        return float(losses[0].array)

    def serialize(self, serializer: Any) -> None:
        """What Chainer's own writers store."""
        self.link.serialize(serializer["model"])
        self.optimizer.serialize(serializer["optimizer"])

    def tensors(self) -> list[np.ndarray[Any, Any]]:
        stored = npz.serialize(self).values()
        return [each for each in stored if isinstance(each, np.ndarray)]

    def release(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class ChainerWorkload:
    title: str
    steps: int
    make: Callable[[int], ChainerTraining]

    def build(self, seed: int, *, in_backward: bool) -> ChainerTraining:
        np.random.seed(seed)
        training = self.make(seed)
        np.random.seed(seed)
        return training


def nt3(seed: int, genes: int = GENES_FULL, batch: int = 5) -> ChainerTraining:
    drawn = batches((batch, 1, genes), 2, seed)
    return ChainerTraining(NT3(genes), chainer.optimizers.SGD(1e-3), drawn)


def mlp(seed: int) -> ChainerTraining:
    drawn = batches((32, MLP_INPUTS), MLP_CLASSES, seed)
    return ChainerTraining(MLP(), chainer.optimizers.Adam(1e-3), drawn)


def resnet50(seed: int) -> ChainerTraining:
    drawn = batches((16, 3, 64, 64), 1000, seed)
    return ChainerTraining(ResNet50(), chainer.optimizers.Adam(1e-3), drawn)


WORKLOADS = {
    "resnet50": ChainerWorkload("ResNet-50 in Chainer, Adam, batch 16 of 3x64x64", 8, resnet50),
    "nt3": ChainerWorkload("CANDLE NT3 in Chainer, 60,483 genes, SGD, batch 5", 8, nt3),
    "nt3-1k": ChainerWorkload(
        "CANDLE NT3 in Chainer, 1,024 genes, SGD, batch 20",
        40,
        functools.partial(nt3, genes=GENES_FEW, batch=20),
    ),
    "mlp": ChainerWorkload("MLP with batch norm and dropout in Chainer, Adam, batch 32", 40, mlp),
    "tiny": ChainerWorkload("smoke size: NT3 of 600 genes", 4, functools.partial(nt3, genes=600)),
}
SAVERS = CHAINER
