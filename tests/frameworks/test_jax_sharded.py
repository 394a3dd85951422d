"""Arrays that lie on several devices of one process: stored whole, restored on any mesh."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepfreeze as df

jax = pytest.importorskip("jax")
from jax import numpy as jnp  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from .jax_kit import stored_keys  # noqa: E402

jax.config.update("jax_num_cpu_devices", 8)  # before any test of this process asks for one
SHAPE = (128, 256)  # 128 KiB of float32
SPECS = [P("a", "b"), P("a"), P(None, "b"), P(), P(("a", "b"))]


@pytest.fixture
def ckpt(tmp_path: Path) -> Iterator[df.Checkpointer]:
    with df.Checkpointer(tmp_path / "run", profile="latency") as checkpointer:
        yield checkpointer


def on(spec: Any, *mesh: int, value: Any = None) -> Any:
    data = jnp.arange(math.prod(SHAPE), dtype=jnp.float32).reshape(SHAPE)
    sharding = NamedSharding(jax.make_mesh(mesh, ("a", "b")), spec)
    return jax.device_put(data if value is None else jnp.full(SHAPE, value), sharding)


@pytest.mark.parametrize("to", [*SPECS, None])
@pytest.mark.parametrize("spec", SPECS)
def test_what_lies_on_eight_devices_comes_back_on_another_mesh(
    ckpt: df.Checkpointer, spec: Any, to: Any
) -> None:
    saved = on(spec, 4, 2)
    live = {"w": jnp.zeros(SHAPE) if to is None else on(to, 2, 4, value=0.0)}
    sharding = live["w"].sharding
    ckpt.save(1, {"w": saved}).wait()
    ckpt.restore(live)
    assert np.array_equal(live["w"], saved)
    assert live["w"].sharding == sharding
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(3):
        live["w"] = step(live["w"])
    assert np.array_equal(live["w"], np.asarray(saved) + 3)


@pytest.mark.parametrize(("spec", "boxes"), [*zip(SPECS, (8, 4, 2, 1, 8), strict=True)])
def test_each_box_is_read_and_stored_once(ckpt: df.Checkpointer, spec: Any, boxes: int) -> None:
    from deepfreeze.frameworks.jax.arrays import _parts_of

    array = on(spec, 4, 2)
    assert len(_parts_of(array)) == boxes
    handle = ckpt.save(1, {"w": array})
    handle.wait()
    assert handle.status().bytes == array.nbytes


def test_the_same_shards_in_other_places_are_another_array(ckpt: df.Checkpointer) -> None:
    mesh = jax.make_mesh((2, 2), ("a", "b"), devices=jax.devices()[:4])
    one, other = NamedSharding(mesh, P("a", "b")), NamedSharding(mesh, P("b", "a"))
    first = jax.device_put(jnp.arange(16.0).reshape(4, 4), one)
    shards = [shard.data for shard in first.addressable_shards]
    state = {
        "first": first,
        "second": jax.make_array_from_single_device_arrays((4, 4), other, shards),
    }
    assert not np.array_equal(*state.values())
    ckpt.save(1, state).wait()
    loaded = ckpt.load(1)
    assert np.array_equal(loaded["first"], state["first"])
    assert np.array_equal(loaded["second"], state["second"])


def test_a_save_leaves_no_copy_of_its_values_with_an_array(ckpt: df.Checkpointer) -> None:
    """NumPy's int4 has other bytes than JAX's, so JAX copies, and would keep the copy."""
    whole, sharded = jnp.arange(8, dtype="int4"), on(P("a"), 8, 1).astype("int4")
    ckpt.save(1, {"whole": whole, "again": whole, "sharded": sharded}).wait()
    shards = [shard.data for shard in sharded.addressable_shards]
    assert [each._npy_value for each in (whole, sharded, *shards)] == [None] * 10
    assert stored_keys(ckpt) == ["sharded", "whole"]
    assert np.array_equal(ckpt.load(1)["sharded"], sharded)


def test_a_sharded_array_may_be_donated_after_save(ckpt: df.Checkpointer) -> None:
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    live = on(P("a", "b"), 4, 2)
    expected = np.array(live)
    handle = ckpt.save(1, {"w": live})
    for _ in range(5):
        live = step(live)
    handle.wait()
    assert np.array_equal(ckpt.load(1)["w"], expected)


def test_sharded_keys_come_back(ckpt: df.Checkpointer) -> None:
    sharding = NamedSharding(jax.make_mesh((8,), ("a",)), P("a"))
    keys = jax.device_put(jax.random.split(jax.random.key(1), 8), sharding)
    ckpt.save(1, {"keys": keys}).wait()
    live = {"keys": jax.device_put(jax.random.split(jax.random.key(2), 8), sharding)}
    for _ in range(2):
        ckpt.restore(live)
        assert np.array_equal(jax.random.key_data(live["keys"]), jax.random.key_data(keys))
        assert (live["keys"].sharding, live["keys"].committed) == (sharding, True)
        live["keys"].delete()  # as a call does that it is donated to
