"""Batches for the networks that are written in each framework, the same in all of them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.networks.torch_workloads import BATCH_COUNT

Batch = tuple[NDArray[Any], NDArray[Any]]


def batches(shape: tuple[int, ...], classes: int, seed: int) -> list[Batch]:
    """Several, used in turn; shape[0] is the batch."""
    draw = np.random.default_rng(seed)
    return [classified(shape, classes, draw) for _ in range(BATCH_COUNT)]


def classified(shape: tuple[int, ...], classes: int, draw: np.random.Generator) -> Batch:
    """Normal numbers with labels."""
    x = draw.standard_normal(shape, dtype=np.float32)
    return x, draw.integers(classes, size=shape[0], dtype=np.int32)
