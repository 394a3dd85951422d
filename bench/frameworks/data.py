"""Batches for the networks that are written in each framework, the same in all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.e2e.workloads import BATCH_COUNT

Batch = tuple[NDArray[Any], NDArray[Any]]


def classified(shape: tuple[int, ...], classes: int, seed: int) -> list[Batch]:
    """Batches of normal numbers with labels; shape[0] is the batch."""
    draw = np.random.default_rng(seed)
    return [
        (
            draw.standard_normal(shape, dtype=np.float32),
            draw.integers(classes, size=shape[0], dtype=np.int32),
        )
        for _ in range(BATCH_COUNT)
    ]
