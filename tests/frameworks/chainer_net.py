"""The common parts of Chainer's trainings: the network, and digests by its own serializers."""

from __future__ import annotations

import hashlib
import importlib
import random
from typing import Any

import numpy as np

from deepfreeze import chainer_compat

from .training import SEED

chainer_compat.install()
chainer: Any = importlib.import_module("chainer")
F, L = chainer.functions, chainer.links


class Net(chainer.Chain):
    """Its first layer is frozen by its training, the last two have one weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        with self.init_scope():
            self.frozen = L.Linear(128, width)
            self.norm = L.BatchNormalization(width)
            self.inner = L.Linear(width, width)
            self.again = L.Linear(width, width)
            self.again.W = self.inner.W

    def forward(self, x: Any) -> Any:
        x = self.norm(self.frozen(x))
        return self.again(F.dropout(F.relu(self.inner(x)), 0.2))

    def loss(self, x: Any) -> Any:
        return F.mean(F.square(self(x)))


def seed_generators(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)


def images(step: int, count: int = 16) -> np.ndarray[Any, Any]:
    drawn = np.random.RandomState(SEED + step).standard_normal((count, 128))
    return drawn.astype(np.float32)


def digest(values: dict[str, Any]) -> str:
    """The digest of numbers and arrays, and of all generators."""
    _, words, *rest = np.random.get_state()
    digest = hashlib.sha256(repr((random.getstate(), words.tobytes(), rest)).encode())
    for name, value in sorted(values.items()):
        array = np.asarray(value)
        digest.update(f"{name}:{array.dtype}:{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def serialized(value: Any) -> dict[str, Any]:
    """The values by Chainer's own serializer."""
    serializer = chainer.serializers.DictionarySerializer()
    value.serialize(serializer)
    return dict(serializer.target)
