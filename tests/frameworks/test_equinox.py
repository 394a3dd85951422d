"""Equinox: its modules are frozen dataclasses, with functions among their children."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import deepfreeze as df

eqx = pytest.importorskip("equinox")
pytest.importorskip("optax")
import jax  # noqa: E402
import optax  # noqa: E402
from jax import numpy as jnp  # noqa: E402

from .jax_kit import same, stored_keys  # noqa: E402

OPTIM = optax.adam(1e-2)


class Net(eqx.Module):
    mlp: eqx.nn.MLP
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout

    def __init__(self, key: Any, width: int) -> None:
        self.mlp = eqx.nn.MLP(3, 3, width, 1, activation=jax.nn.gelu, key=key)
        self.norm = eqx.nn.BatchNorm(3, axis_name="batch", mode="batch")
        self.dropout = eqx.nn.Dropout(0.5)

    def __call__(self, x: Any, state: Any, key: Any) -> Any:
        x, state = self.norm(x, state)
        return self.dropout(self.mlp(x), key=key), state


def new_state(seed: int, width: int = 8) -> dict[str, Any]:
    net, statistics = eqx.nn.make_with_state(Net)(jax.random.key(seed), width)
    opt = OPTIM.init(eqx.filter(net, eqx.is_inexact_array))
    return {"net": net, "statistics": statistics, "opt": opt, "key": jax.random.key(seed)}


@eqx.filter_jit(donate="all")
def trained(state: dict[str, Any]) -> dict[str, Any]:
    key, now = jax.random.split(state["key"])

    def loss(net: Any) -> Any:
        x = jax.random.normal(now, (4, 3))
        call = jax.vmap(net, axis_name="batch", in_axes=(0, None, None), out_axes=(0, None))
        y, statistics = call(x, state["statistics"], now)
        return jnp.mean(y**2), statistics

    grads, statistics = eqx.filter_grad(loss, has_aux=True)(state["net"])
    changes, opt = OPTIM.update(grads, state["opt"])
    net = eqx.apply_updates(state["net"], changes)
    return {"net": net, "statistics": statistics, "opt": opt, "key": key}


def arrays_of(state: dict[str, Any]) -> Any:
    return eqx.filter(state, eqx.is_array)


def test_a_training_is_resumed_to_the_bit(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "run", profile="latency") as ckpt:
        state = trained(trained(new_state(0)))
        ckpt.save(1, state).wait()
        assert {"net.mlp.layers.0.weight", "opt.0.mu.mlp.layers.1.bias"} <= {*stored_keys(ckpt)}
        fresh = new_state(1)
        assert ckpt.restore(fresh) == 1
        assert same(arrays_of(fresh), arrays_of(state))
        assert fresh["net"].mlp.activation is not None
        assert same(arrays_of(trained(fresh)), arrays_of(trained(state)))


def test_another_width_is_named(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, new_state(0)).wait()
        with pytest.raises(df.MismatchError, match=r"net\.mlp\.layers\.0\.weight: stored"):
            ckpt.restore(new_state(0, width=9))
