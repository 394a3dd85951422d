"""Tensors and arrays that share memory, are not contiguous, or have lost their storage."""

from typing import Any

import numpy as np
import pytest
import torch
from testkit import assert_same, save

import deepfreeze as df
from deepfreeze.frameworks.torch import tensors as torch_tensors


@pytest.mark.parametrize("size", [0, 8])
def test_a_tensor_beyond_its_storage_is_refused(ckpt: df.Checkpointer, size: int) -> None:
    save(ckpt, 1, {"m": {"x": torch.ones(1000)}})
    gone = torch.ones(1000)
    gone.untyped_storage().resize_(size)
    with pytest.raises(df.EncodeError, match=r"^m\.x: .*storage"):
        ckpt.save(2, {"m": {"x": gone}})
    with pytest.raises(df.MismatchError, match=r"m\.x: .*storage") as caught:
        ckpt.restore({"m": {"x": gone}})
    assert not caught.value.state_modified


def test_autograd_notices_a_restore(ckpt: df.Checkpointer) -> None:
    weight = torch.ones(3, requires_grad=True)
    save(ckpt, 1, {"w": weight})
    loss = (weight * weight).sum()
    ckpt.restore({"w": weight})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_buffers_are_on_the_host_whatever_the_default_device(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"x": torch.arange(6.0).view(2, 3).t(), "c": torch.ones(2)})
    live = {"x": torch.zeros(3, 2), "c": torch.zeros(2)}
    with torch.device("meta"):
        loaded = ckpt.load(1)
        ckpt.restore(live)
    assert_same(loaded["x"], torch.arange(6.0).view(2, 3).t())
    assert_same(live["x"], loaded["x"])


@pytest.mark.parametrize(
    "tie",
    [lambda w: w.t(), lambda w: w[1:], lambda w: w.view(torch.int32), lambda w: w[:, 1]],
    ids=["transposed", "part", "other dtype", "column"],
)
def test_stored_apart_but_live_shared_is_refused(ckpt: df.Checkpointer, tie: Any) -> None:
    save(ckpt, 1, {"a": torch.ones(3, 3), "b": tie(torch.zeros(3, 3)).clone()})
    weight = torch.full((3, 3), 7.0)
    with pytest.raises(df.MismatchError, match="b: it shares its memory with a"):
        ckpt.restore({"a": weight, "b": tie(weight)})
    assert weight.eq(7.0).all()


def test_stored_shared_in_another_way_is_refused(ckpt: df.Checkpointer) -> None:
    base = torch.arange(9.0).view(3, 3)
    save(ckpt, 1, {"a": base, "b": base.view(3, 3)})
    live = torch.zeros(3, 3)
    with pytest.raises(df.MismatchError, match="b: it shares its memory with a"):
        ckpt.restore({"a": live, "b": live.t()})


def test_memory_beyond_a_storage_is_taken_on_the_host_only() -> None:
    memory = np.zeros(64, dtype=np.uint8)
    low = memory.ctypes.data
    found = {}
    for device in ("cpu", "meta"):
        elsewhere = torch.empty(8, dtype=torch.uint8, device=device)
        item = torch_tensors.Pending({}, elsewhere, "x", True, low, low + 64)
        found[device] = torch_tensors._elements_between([item], low, low + 64, mixed=False)
    assert found["meta"] is None
    assert found["cpu"] is not None
    assert (found["cpu"].data_ptr(), found["cpu"].nbytes) == (low, 64)


def test_interleaved_columns_share_nothing(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"a": torch.ones(3), "b": torch.zeros(3)})
    both = torch.full((3, 2), 7.0)
    ckpt.restore({"a": both[:, 0], "b": both[:, 1]})
    assert both.tolist() == [[1.0, 0.0]] * 3


@pytest.mark.parametrize(
    "views",
    [
        lambda a: {"t": torch.from_numpy(a), "a": a},
        lambda a: {"a": a, "t": torch.from_numpy(a)},
        lambda a: {"a": a, "flat": a.reshape(-1), "t": a.T},
        lambda a: {"row": a[1], "column": a[:, 2], "a": a},
        lambda a: {"low": a[:2], "high": a[1:]},
        lambda a: {"low": torch.from_numpy(a[:2]), "high": torch.from_numpy(a[1:])},
    ],
)
def test_arrays_and_tensors_in_one_memory_come_back(ckpt: df.Checkpointer, views: Any) -> None:
    array = np.arange(12.0).reshape(3, 4)
    save(ckpt, 1, views(array))
    other = np.zeros((3, 4))
    ckpt.restore(views(other))
    assert other.tolist() == array.tolist()
    loaded = ckpt.load(1)
    for name, value in views(array).items():
        assert np.asarray(loaded[name]).tolist() == np.asarray(value).tolist()


def test_arrays_of_strings_and_dates(ckpt: df.Checkpointer) -> None:
    state = {
        "u": np.array(["grüße", ""]), "s": np.array([b"ab", b"c"]), "big": np.array(["x"], ">U2"),
        "d": np.array(["2020-01-01"], "M8[ns]"), "f": np.asfortranarray([["a"]]),
    }  # fmt: skip
    save(ckpt, 1, state)
    live: dict[str, Any] = {name: np.zeros_like(value) for name, value in state.items()}
    ckpt.restore(live)
    loaded = ckpt.load(1)
    for name, value in state.items():
        assert np.asarray(live[name]).tolist() == np.asarray(value).tolist()
        assert np.asarray(loaded[name]).tolist() == np.asarray(value).tolist()
