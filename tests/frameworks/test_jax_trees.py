"""Pytrees of JAX: their names, objects that are made anew, and sharing between two places."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import deepfreeze as df

jax = pytest.importorskip("jax")
from jax import numpy as jnp  # noqa: E402

from .jax_kit import LARGE, same, same_array, stored_keys  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ckpt(tmp_path: Path) -> Iterator[df.Checkpointer]:
    with df.Checkpointer(tmp_path / "run", profile="latency") as checkpointer:
        yield checkpointer


class Moments(NamedTuple):
    mu: Any
    nu: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Layer:
    """Made as Equinox does: a function among the children, and static values."""

    weight: Any
    activation: Any
    children: Any = ()
    name: str = field(default="", metadata={"static": True})


def test_an_array_in_two_places_is_stored_once_and_shared_again(ckpt: df.Checkpointer) -> None:
    array, other = jnp.ones(LARGE), jnp.zeros(LARGE)
    ckpt.save(1, {"a": array, "b": Moments(array, array)}).wait()
    live = {"a": other, "b": Moments(other, jnp.zeros(LARGE))}
    ckpt.restore(live)
    assert live["a"] is live["b"].mu
    assert live["a"] is not live["b"].nu
    assert same(live, {"a": array, "b": Moments(array, array)})
    assert len(stored_keys(ckpt)) == 1


def test_pytree_objects_come_back_by_name_as_what_they_were(ckpt: df.Checkpointer) -> None:
    def layer(value: float, activation: Any) -> Layer:
        inner = Layer(jnp.full(2, value), activation)
        return Layer(jnp.full(3, value), activation, (inner, [jnp.full(1, value), None, 3]))

    root: dict[str, Any] = {"net": layer(0, jnp.tanh), "opt": (Moments({"w": jnp.zeros(2)}, 7),)}
    saved = {"net": layer(1, jnp.sin), "opt": (Moments({"w": jnp.ones(2)}, 8),)}
    ckpt.save(1, saved).wait()
    assert stored_keys(ckpt) == [
        "net.children.0.weight", "net.children.1.0", "net.weight", "opt.0.mu.w",
    ]  # fmt: skip
    before = root["net"]
    ckpt.restore(root)
    assert root["net"].activation is jnp.tanh  # code is the program's
    assert root["net"] is not before
    assert float(before.weight[0]) == 0  # the old object stays unchanged
    assert same_array(root["net"].children[0].weight, saved["net"].children[0].weight)
    assert root["net"].children[1][1:] == [None, 3]
    assert root["opt"][0].nu == 8


def test_missing_and_other_children_are_named_before_anything_changes(
    ckpt: df.Checkpointer,
) -> None:
    ckpt.save(1, {"opt": Moments({"w": jnp.ones(2), "x": jnp.ones(2)}, jnp.ones(3))}).wait()
    live = {"opt": Moments({"w": jnp.zeros(2), "y": jnp.zeros(2)}, jnp.zeros(4))}
    before = live["opt"]
    with pytest.raises(df.MismatchError) as error:
        ckpt.restore(live)
    for name in ("opt.nu: stored float32[3], live float32[4]", "opt.mu.y", "opt.mu.x"):
        assert name in str(error.value)
    assert live["opt"] is before


def test_what_two_places_of_a_tree_share_must_have_been_stored_alike(
    ckpt: df.Checkpointer,
) -> None:
    """params and their average are often one dict at first: filling it twice would lose one."""
    ckpt.save(1, {"params": {"w": jnp.ones(2)}, "average": {"w": jnp.zeros(2)}}).wait()
    params = {"w": jnp.full(2, 5.0)}
    with pytest.raises(df.MismatchError, match=r"average\.w: it is in the same dict as params\.w"):
        ckpt.restore({"params": params, "average": params})
    assert float(params["w"][0]) == 5
    live = {"both": Moments(params, params)}  # inside of a pytree every container is made anew
    ckpt.save(2, {"both": Moments({"w": jnp.ones(2)}, {"w": jnp.zeros(2)})}).wait()
    ckpt.restore(live)
    assert [float(live["both"].mu["w"][0]), float(live["both"].nu["w"][0])] == [1, 0]


def test_a_number_that_became_an_array_restores_into_a_fresh_state(
    ckpt: df.Checkpointer,
) -> None:
    ckpt.save(1, {"state": Moments(jnp.int32(4), 0.5)}).wait()
    live = {"state": Moments(0, jnp.float32(0))}
    ckpt.restore(live)
    assert isinstance(live["state"].mu, jax.Array)
    assert (int(live["state"].mu), live["state"].nu) == (4, 0.5)


@pytest.mark.parametrize("number", [0, 0.5, True, 1j, np.int32(3), np.bool_(True), np.float32(2)])
def test_any_number_may_have_become_an_array_or_be_one(ckpt: df.Checkpointer, number: Any) -> None:
    array = jnp.asarray(number)
    ckpt.save(1, {"state": Moments(array, number), "top": number}).wait()
    live = {"state": Moments(number, array), "top": array}
    ckpt.restore(live)
    assert same_array(live["state"].mu, array)
    assert [(type(each), each) for each in (live["state"].nu, live["top"])] == [
        (type(number), number)
    ] * 2


@pytest.mark.parametrize("stored", ["text", np.str_("text"), None, np.datetime64("2020-01-01")])
def test_what_is_no_number_does_not_become_an_array(ckpt: df.Checkpointer, stored: Any) -> None:
    ckpt.save(1, {"x": stored}).wait()
    with pytest.raises(df.MismatchError, match=r"x: stored .*, live an array of float32"):
        ckpt.restore({"x": jnp.float32(0)})


class Keyed:
    """Gives JAX keys that are no objects of its own."""

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second


jax.tree_util.register_pytree_with_keys(
    Keyed,
    lambda tree: ([("first", tree.first), (2, tree.second)], None),
    lambda _, children: Keyed(*children),
)


def test_key_paths_of_any_kind_are_names(ckpt: df.Checkpointer) -> None:
    ckpt.save(1, {"k": Keyed(jnp.ones(3), jnp.ones(2))}).wait()
    assert stored_keys(ckpt) == ["k.2", "k.first"]
    live = {"k": Keyed(jnp.zeros(3), jnp.zeros(2))}
    ckpt.restore(live)
    assert same_array(live["k"].first, jnp.ones(3))


def test_keys_choose_inside_of_pytrees(ckpt: df.Checkpointer) -> None:
    ckpt.save(1, {"opt": Moments(jnp.ones(2), jnp.ones(2))}).wait()
    live = {"opt": Moments(jnp.zeros(2), jnp.zeros(2))}
    ckpt.restore(live, keys=["opt.mu"])
    assert [float(live["opt"].mu[0]), float(live["opt"].nu[0])] == [1, 0]


def test_it_loads_without_jax(ckpt: df.Checkpointer, tmp_path: Path) -> None:
    ckpt.save(1, {"opt": (Moments(jnp.ones(2), 3),), "key": jax.random.key(1)}).wait()
    code = (
        "import sys, deepfreeze as df; "
        f"values = df.Checkpointer({str(tmp_path / 'run')!r}).load(); "
        "assert values['opt'][0]['mu'].tolist() == [1, 1] and values['opt'][0]['nu'] == 3; "
        "assert values['key']['data'].tolist() == [0, 1]; assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)


def test_without_strict_what_has_another_shape_stays(ckpt: df.Checkpointer) -> None:
    def state(count: int, step: Any) -> dict[str, Any]:
        params = {"a": jnp.full(3, float(count)), "b": jnp.full(count, 1.0)}
        return {"params": params, "opt": Moments(params, jnp.ones(count)), "step": step}

    ckpt.save(1, state(3, jnp.asarray(7))).wait()
    live = state(4, 0)
    ckpt.restore(live, strict=False)
    assert ckpt.last_restore is not None
    assert {*ckpt.last_restore.mismatched} == {"params.b", "opt.mu.b", "opt.nu"}
    assert float(live["params"]["a"][0]) == float(live["opt"].mu["a"][0]) == 3
    assert live["params"]["b"].shape == live["opt"].mu["b"].shape == (4,)
    assert int(live["step"]) == 7
