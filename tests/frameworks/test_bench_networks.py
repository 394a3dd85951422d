"""The networks of lab/networks have the sizes of those for torch, and train."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("orbax", reason="of build/frameworks-venv")

import jax
from flax import nnx

from lab.networks import chainer_workloads as chainer_window
from lab.networks import jax_workloads as jax_window
from lab.networks import keras_workloads as keras_window
from lab.tests.conftest import one_thread  # noqa: F401 (a fixture that is used by itself)
from lab.writers.loop import Saver

COUNTS = {"nt3-1k": 2_705_318, "mlp": 1_867_786}
WINDOWS: dict[str, Any] = {
    "chainer": chainer_window, "jax": jax_window, "keras": keras_window
}  # fmt: skip


def parameter_count(framework: str, training: Any) -> int:
    if framework == "chainer":
        return sum(each.size for each in training.link.params())
    if framework == "jax":
        return sum(each.size for each in jax.tree.leaves(nnx.state(training.model, nnx.Param)))
    return sum(math.prod(each.shape) for each in training.model.trainable_variables)


@pytest.mark.parametrize("name", list(COUNTS))
@pytest.mark.parametrize("framework", list(WINDOWS))
def test_a_network_has_its_size_and_trains(framework: str, name: str) -> None:
    training = WINDOWS[framework].WORKLOADS[name].build(7, in_backward=False)
    assert parameter_count(framework, training) == COUNTS[name]
    losses = [training.train_step(step, Saver(training, Path(), every=1)) for step in range(2)]
    assert all(map(math.isfinite, losses))
    assert losses[0] != losses[1]
