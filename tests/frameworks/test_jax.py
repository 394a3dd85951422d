"""JAX arrays, keys and pytrees: restored values, refused ones, and memory that nobody may share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepfreeze as df

jax = pytest.importorskip("jax")
from jax import numpy as jnp  # noqa: E402

from .jax_kit import LARGE, same, same_array  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ckpt(tmp_path: Path) -> Iterator[df.Checkpointer]:
    with df.Checkpointer(tmp_path / "run", profile="latency") as checkpointer:
        yield checkpointer


def test_arrays_of_every_dtype_come_back_to_the_bit(ckpt: df.Checkpointer) -> None:
    names = [
        "bool", "int8", "uint32", "float16", "bfloat16", "float32", "complex64", "int4", "uint4",
        "int2", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e3m4",
        "float8_e8m0fnu", "float4_e2m1fn",
    ]  # fmt: skip
    state = {name: jnp.arange(6).reshape(2, 3).astype(name) for name in names}
    state |= {"empty": jnp.zeros((0, 3)), "scalar": jnp.float32(0.1)}
    ckpt.save(1, state).wait()
    live = {name: jnp.zeros_like(array) for name, array in state.items()}
    assert ckpt.restore(live) == 1
    assert same(live, state)


def test_large_arrays_are_captured_after_save_and_small_ones_at_once(
    ckpt: df.Checkpointer,
) -> None:
    handle = ckpt.save(1, {"large": jnp.ones(LARGE), "small": jnp.ones(8)})
    handle.wait()
    assert handle.status().guarded_bytes == 4 * LARGE[0] * LARGE[1]


def test_a_donated_array_is_named(ckpt: df.Checkpointer) -> None:
    array = jnp.ones(LARGE)
    jax.jit(lambda x: x + 1, donate_argnums=0)(array)
    with pytest.raises(df.EncodeError, match=r"net\.0\.w: the array was deleted"):
        ckpt.save(1, {"net": [{"w": array}]})


def test_a_tracer_is_named(ckpt: df.Checkpointer) -> None:
    def step(x: Any) -> Any:
        ckpt.save(1, {"net": {"w": x}})
        return x

    with pytest.raises(df.EncodeError, match=r"net\.w: a tracer has no values"):
        jax.jit(step)(jnp.ones(3))


def test_a_deleted_array_can_be_restored_into(ckpt: df.Checkpointer) -> None:
    state = {"w": jnp.arange(5.0), "key": jax.random.key(3)}
    ckpt.save(1, state).wait()
    live = {"w": jnp.zeros(5), "key": jax.random.key(0)}
    live["w"].delete()
    live["key"].delete()
    ckpt.restore(live)
    assert same(live, state)


def test_float64_is_not_narrowed(ckpt: df.Checkpointer) -> None:
    with jax.enable_x64(True):
        state = {"w": jnp.full(3, 0.1, "float64")}
        live = {"w": jnp.zeros(3, "float64")}
        ckpt.save(1, state).wait()
    with pytest.raises(df.MismatchError, match=r"w: JAX makes no float64 without jax_enable_x64"):
        ckpt.restore(live)
    with jax.enable_x64(True):
        ckpt.restore(live)
        assert same(live, state)


def test_another_version_is_warned_of_once(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from deepfreeze.frameworks.jax import adapter

    monkeypatch.setattr(jax, "__version__", "0.99.1")
    adapter._warn_of_versions.cache_clear()
    for step in (1, 2):
        ckpt.save(step, {"w": jnp.ones(3), "x": jnp.ones(3)}).wait()
    warned = [each.getMessage() for each in caplog.records if "0.99.1" in each.getMessage()]
    assert len(warned) == 1
    assert "0.10" in warned[0]


def test_keys_come_back_with_their_generator(ckpt: df.Checkpointer) -> None:
    state = {"one": jax.random.key(5), "many": jax.random.split(jax.random.key(6, impl="rbg"), 3)}
    ckpt.save(1, state).wait()
    live = {"one": jax.random.key(0), "many": jax.random.split(jax.random.key(0, impl="rbg"), 3)}
    ckpt.restore(live)
    assert same(live, state)
    assert same(ckpt.load(1), state)
    with pytest.raises(df.MismatchError, match=r"one: stored keys of .*fry.*, live of .*rbg"):
        ckpt.restore({**live, "one": jax.random.key(0, impl="rbg")})


def test_a_restored_array_compiles_nothing_anew(ckpt: df.Checkpointer) -> None:
    """Neither weak types nor the commitment of arrays has changed."""
    step = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree))
    pinned = jax.device_put(jnp.ones(3), jax.devices()[0])
    state = {"tree": {"count": jnp.asarray(0), "free": jnp.ones(3), "pinned": pinned}}
    assert state["tree"]["count"].weak_type
    ckpt.save(1, state).wait()
    step(state["tree"])
    compiled = step._cache_size()
    ckpt.restore(state)
    tree = state["tree"]
    assert (tree["free"].committed, tree["pinned"].committed) == (False, True)
    assert tree["count"].weak_type
    step(tree)
    assert step._cache_size() == compiled


def test_a_restored_model_does_not_use_the_buffers_that_were_read_into(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deepfreeze.state.entry import Buffer

    found: list[Any] = []

    def aligned(size: int) -> Any:
        memory = np.empty(size + 64, np.uint8)
        start = -memory.ctypes.data % 64  # JAX would use such memory as it is
        array = memory[start : start + size]
        found.append(array)
        return Buffer(array, array.ctypes.data, size, None)

    monkeypatch.setattr("deepfreeze.frameworks.numpy.allocate", aligned)
    pinned = jax.device_put(jnp.ones(LARGE), jax.devices()[0])
    state = {"free": jnp.ones(LARGE), "pinned": pinned}
    ckpt.save(1, state).wait()
    live = {"free": jnp.zeros(LARGE), "pinned": jnp.zeros_like(pinned)}
    ckpt.restore(live)
    assert len(found) == 2
    for array in found:
        array[:] = 255
    assert same(live, state)


def test_a_restored_array_can_be_donated_and_its_twin_stays(ckpt: df.Checkpointer) -> None:
    array = jax.device_put(jnp.ones(LARGE), jax.devices()[0])
    ckpt.save(1, {"a": array, "b": array}).wait()
    live = {"a": jnp.zeros_like(array), "b": jnp.zeros_like(array)}
    ckpt.restore(live)
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(3):
        live["a"] = step(live["a"])
    assert float(live["a"][0, 0]) == 4
    assert same_array(live["b"], array)


def test_it_works_beside_torch(ckpt: df.Checkpointer) -> None:
    torch = pytest.importorskip("torch")
    state = {"t": torch.ones(3), "w": jnp.ones(LARGE, "bfloat16"), "i": jnp.arange(4, dtype="int4")}
    ckpt.save(1, state).wait()
    live = {"t": torch.zeros(3), "w": jnp.zeros(LARGE, "bfloat16"), "i": jnp.zeros(4, "int4")}
    ckpt.restore(live)
    assert bool((live["t"] == 1).all())
    assert same([live["w"], live["i"]], [state["w"], state["i"]])
    ckpt.restore({"t": jnp.zeros(3), "w": live["w"], "i": live["i"]})  # saved by torch


def test_the_documents_programs_run_and_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optax")
    pytest.importorskip("flax")
    text = (ROOT / "docs" / "frameworks" / "jax.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert [run_twice(each) for each in programs] == [(0, 10), (0, 1)]


def run_twice(program: str) -> tuple[int, int]:
    """From which steps its two runs went on."""
    first: dict[str, Any] = {}
    exec(program, first)
    second: dict[str, Any] = {}
    exec(program, second)
    return first["start"], second["start"]
