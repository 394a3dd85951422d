"""Flax: NNX's objects in place, and Linen's containers as pytrees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepfreeze as df

pytest.importorskip("flax")
pytest.importorskip("optax")
import jax
import optax
from flax import linen, nnx
from flax.core import freeze
from flax.training.train_state import TrainState
from jax import numpy as jnp

from .jax_kit import stored_keys


@pytest.fixture
def ckpt(tmp_path: Path) -> Iterator[df.Checkpointer]:
    with df.Checkpointer(tmp_path / "run", profile="latency") as checkpointer:
        yield checkpointer


class Tied(nnx.Module):
    def __init__(self, seed: int) -> None:
        rngs = nnx.Rngs(seed)
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs), nnx.Linear(3, 3, rngs=rngs)])
        self.layers[1].kernel = self.layers[0].kernel
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.layers[1](self.dropout(self.norm(self.layers[0](x))))


def bytes_of(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(jax.tree.map(plain, tree))]


def plain(leaf: Any) -> Any:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def test_nnx_objects_are_updated_in_place(ckpt: df.Checkpointer) -> None:
    saved, live = Tied(1), Tied(2)
    saved(jnp.ones((4, 3)))
    optims = [nnx.Optimizer(each, optax.adam(1e-3), wrt=nnx.Param) for each in (saved, live)]
    rngs = [nnx.Rngs(3), nnx.Rngs(4)]
    rngs[0]()
    ckpt.save(1, {"net": saved, "optim": optims[0], "rngs": rngs[0]}).wait()
    kernel = live.layers[0].kernel
    ckpt.restore({"net": live, "optim": optims[1], "rngs": rngs[1]})
    assert live.layers[0].kernel is kernel
    assert live.layers[1].kernel is kernel
    assert bytes_of(nnx.state(live)) == bytes_of(nnx.state(saved))
    assert bytes_of(nnx.state(rngs[1])) == bytes_of(nnx.state(rngs[0]))
    x = jnp.ones((4, 3))
    assert np.array_equal(live(x), saved(x))  # dropout's next mask, too


def test_nnx_names_are_stable_and_shared_variables_stored_once(ckpt: df.Checkpointer) -> None:
    net = Tied(1)
    optim = nnx.Optimizer(net, optax.adam(1e-3), wrt=nnx.Param)
    ckpt.save(1, {"net": net, "optim": optim}).wait()
    keys = stored_keys(ckpt)
    assert "net.layers.0.kernel" in keys
    assert "net.layers.1.kernel" not in keys
    assert "net.norm.mean" in keys
    assert "net.dropout.rngs.count" in keys
    assert "optim.opt_state.0.mu.layers.0.kernel" in keys


def test_an_nnx_mismatch_is_named_and_changes_nothing(ckpt: df.Checkpointer) -> None:
    ckpt.save(1, {"net": nnx.Linear(3, 3, rngs=nnx.Rngs(0))}).wait()
    live = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
    before = bytes_of(nnx.state(live))
    with pytest.raises(df.MismatchError, match=r"net\.kernel: stored float32\[3, 3\], live"):
        ckpt.restore({"net": live})
    assert bytes_of(nnx.state(live)) == before


class Counted(nnx.Module):
    def __init__(self, number: Any) -> None:
        self.number = nnx.Variable(number)


def test_a_variable_that_became_an_array_restores_into_a_fresh_one(ckpt: df.Checkpointer) -> None:
    @nnx.jit
    def count(net: Counted) -> None:
        net.number.set_value(net.number.get_value() + 1)

    saved = Counted(0)
    count(saved)
    ckpt.save(1, {"net": saved, "alone": nnx.Variable(jnp.int32(5))}).wait()
    live = {"net": Counted(0), "alone": nnx.Variable(0)}
    ckpt.restore(live)
    assert isinstance(live["net"].number.get_value(), jax.Array)
    assert [int(each.get_value()) for each in (live["net"].number, live["alone"])] == [1, 5]
    ckpt.save(2, {"net": Counted(7)}).wait()
    ckpt.restore({"net": saved})  # the other way round
    assert saved.number.get_value() == 7


def test_names_of_an_nnx_object_are_compared_whatever_it_has(ckpt: df.Checkpointer) -> None:
    class Empty(nnx.Module):
        pass

    class Other(nnx.Module):
        def __init__(self) -> None:
            self.other = nnx.Variable(1)

    first = {"w": jnp.zeros(2)}
    ckpt.save(1, {"first": {"w": jnp.ones(2)}, "net": Counted(3)}).wait()
    for net in (Empty(), Other()):
        with pytest.raises(df.MismatchError, match=r"not in the state: net\.number"):
            ckpt.restore({"first": first, "net": net})
        assert float(first["w"][0]) == 0
        ckpt.restore({"first": first, "net": net}, strict=False)
        first["w"] = jnp.zeros(2)


def test_keys_choose_inside_of_an_nnx_object(ckpt: df.Checkpointer) -> None:
    saved, live = (nnx.Linear(2, 2, rngs=nnx.Rngs(seed)) for seed in (0, 1))
    saved.bias[...] = jnp.ones(2)
    ckpt.save(1, {"net": saved}).wait()
    kernel = np.array(live.kernel[...])
    ckpt.restore({"net": live}, keys=["net.bias"])
    assert np.array_equal(live.bias[...], [1, 1])
    assert np.array_equal(live.kernel[...], kernel)


def test_variables_and_states_of_nnx_can_stand_alone(ckpt: df.Checkpointer) -> None:
    net = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    ckpt.save(1, {"count": nnx.Variable(jnp.int32(5)), "state": nnx.state(net)}).wait()
    assert "state.kernel" in stored_keys(ckpt)
    other = nnx.Linear(2, 2, rngs=nnx.Rngs(1))
    live: dict[str, Any] = {"count": nnx.Variable(jnp.int32(0)), "state": nnx.state(other)}
    count = live["count"]
    ckpt.restore(live)
    assert live["count"] is count
    assert int(count[...]) == 5
    nnx.update(other, live["state"])
    assert bytes_of(nnx.state(other)) == bytes_of(nnx.state(net))


class Mlp(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.Dense(2)(linen.BatchNorm(use_running_average=False)(x))


def new_state(seed: int) -> TrainState:
    net = Mlp()
    params = net.init(jax.random.key(seed), jnp.ones((2, 3)))["params"]
    rule = optax.inject_hyperparams(optax.adam)(learning_rate=1e-3)
    return TrainState.create(apply_fn=net.apply, params=params, tx=optax.MultiSteps(rule, 2))


def test_a_train_state_of_linen_comes_back(ckpt: df.Checkpointer) -> None:
    @jax.jit
    def step(state: TrainState) -> TrainState:
        return state.apply_gradients(grads=jax.tree.map(jnp.ones_like, state.params))

    saved = step(step(new_state(0)))
    ckpt.save(1, {"train": saved}).wait()
    assert "train.params.Dense_0.kernel" in stored_keys(ckpt)
    live = {"train": new_state(1)}  # its step is a number, and no array yet
    tx = live["train"].tx
    ckpt.restore(live)
    assert live["train"].tx is tx
    assert int(live["train"].step) == 2
    assert bytes_of(step(live["train"])) == bytes_of(step(saved))


def test_a_frozen_dict_comes_back(ckpt: df.Checkpointer) -> None:
    ckpt.save(1, {"params": freeze({"a": {"b": jnp.ones(2)}})}).wait()
    assert stored_keys(ckpt) == ["params.a.b"]
    live = {"params": freeze({"a": {"b": jnp.zeros(2)}})}
    ckpt.restore(live)
    assert type(live["params"]) is type(freeze({}))
    assert float(live["params"]["a"]["b"][0]) == 1
