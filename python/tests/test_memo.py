"""A walk that remembers the last one gives what a fresh walk gives."""

from __future__ import annotations

import ctypes
import gc
import random
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import deepfreeze as df
from deepfreeze.frameworks.torch import memo as torch_memo
from deepfreeze.saving.capture import Capture, walk
from deepfreeze.state.encoder import TextMemo, dumps
from deepfreeze.state.memo import Memo

CHANGES_PER_STATE = 12
STATES = 60


def told(capture: Capture) -> tuple[str, list[tuple[object, ...]]]:
    """The stored form of a capture: text, and of each entry its form and bytes."""
    entries = [
        (e.key, e.dtype, e.shape, e.logical_dtype, e.bytes, ctypes.string_at(e.address, e.bytes))
        for e in capture.entries
    ]
    return capture.text, entries


class Life:
    """A state that changes in ways which a memo could miss."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        torch.manual_seed(seed)
        self.base = torch.randn(64)
        self.state: dict[str, Any] = {
            "a": torch.randn(4, 6),
            "b": torch.randn(4, 6),
            "net": nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)),
            "views": [self.base[:32], self.base[16:48]],
            "array": np.arange(6.0),
            "blob": bytes(5000),
            "plain": {"x": 1, "y": [1.0, True, None], "z": "text"},
            "rng": df.RNG(),
        }
        self.state["optim"] = torch.optim.Adam(self.state["net"].parameters())
        self._step()

    def _step(self) -> None:
        self.state["net"](torch.randn(4, 3)).sum().backward()
        self.state["optim"].step()

    def change(self) -> str:
        change = self.draw.choice([name for name in dir(self) if name.startswith("do_")])
        getattr(self, change)()
        return change

    def do_nothing(self) -> None:
        torch.randn(self.draw.randrange(1, 9))  # moves the generator, and perhaps memory

    def do_step(self) -> None:
        self._step()

    def do_write(self) -> None:
        self.state["a"].add_(1)

    def do_replace(self) -> None:
        self.state["b"] = torch.randn(4, 6)

    def do_tie(self) -> None:
        self.state["b"] = self.state["a"]

    def do_tie_in_part(self) -> None:
        self.state["b"] = self.state["a"][1:]

    def do_restride(self) -> None:
        self.state["a"] = self.state["a"].contiguous().view(-1)[: 4 * 6].view(6, 4).t()

    def do_transpose(self) -> None:
        self.state["b"] = torch.randn(6, 4).t()

    def do_retype(self) -> None:
        self.state["a"] = self.state["a"].contiguous().view(torch.int32)

    def do_type_back(self) -> None:
        self.state["a"] = torch.randn(4, 6)

    def do_empty(self) -> None:
        self.state["b"] = torch.empty(0, 6)

    def do_slide_a_view(self) -> None:
        start = self.draw.randrange(32)
        self.state["views"][0] = self.base[start : start + 32]

    def do_view_of_nothing(self) -> None:
        self.state["views"] = [torch.randn(32), torch.randn(32)]

    def do_negate(self) -> None:
        self.state["b"] = torch.view_as_complex(torch.randn(4, 6, 2)).conj().imag

    def do_array_shares(self) -> None:
        self.state["array"] = self.state["views"][0].numpy()

    def do_array(self) -> None:
        self.state["array"] = np.arange(self.draw.randrange(1, 9), dtype=np.float64)

    def do_blob_of_that_name(self) -> None:
        self.state["blob"] = {"storage": bytes(5000)}

    def do_rename(self) -> None:
        self.state["c" + str(self.draw.randrange(3))] = self.state.pop("a", torch.ones(2))
        self.state["a"] = torch.randn(4, 6)

    def do_plain(self) -> None:
        values = [1, True, 1.0, 0.0, -0.0, "1", None, float("nan"), 1 << 60, [1], {"x": 1}]
        self.state["plain"][self.draw.choice("xyz")] = self.draw.choice(values)

    def do_another_net(self) -> None:
        self.state["net"] = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
        self.state["optim"] = torch.optim.Adam(self.state["net"].parameters())
        self._step()

    def do_learning_rate(self) -> None:
        self.state["optim"].param_groups[0]["lr"] *= 0.5


@pytest.mark.parametrize("seed", range(STATES))
def test_with_a_memo_the_same_is_stored(seed: int) -> None:
    life, memo, changes = Life(seed), Memo(), []
    for _ in range(CHANGES_PER_STATE):
        changes.append(life.change())
        remembered, fresh = walk(life.state, memo), walk(life.state)
        assert told(remembered) == told(fresh), changes


def test_a_storage_that_shrank_is_still_refused() -> None:
    state, memo = {"x": torch.randn(64)}, Memo()
    walk(state, memo)
    walk(state, memo)
    state["x"].untyped_storage().resize_(8)
    with pytest.raises(df.EncodeError, match="storage is smaller"):
        walk(state, memo)


def test_a_key_that_something_else_takes_first() -> None:
    """Bytes have their names before tensors, which take those that are left."""
    tensors, memo = {"b": torch.ones(3)}, Memo()
    for state in ({"a": tensors}, {"a": tensors, "a.b": bytes(5000)}, {"a": tensors}):
        assert told(walk(state, memo)) == told(walk(state, Memo()))


def test_a_tensor_that_becomes_each_ranks_own() -> None:
    tensor, memo = torch.ones(3), Memo()
    for state in ({"x": tensor}, {"x": df.per_rank(tensor)}, {"x": tensor}):
        assert told(walk(state, memo, 1)) == told(walk(state, Memo(), 1))


def test_one_tensor_that_comes_to_lie_where_another_had_moved_to() -> None:
    """Both lie where the last to move lay, but now they are tied."""
    state, memo = {name: nn.Linear(3, 3, bias=False) for name in "ab"}, Memo()
    for _ in range(3):
        walk(state, memo)
    state["a"].weight.data = torch.ones(3, 3)
    walk(state, memo)
    state["b"].weight.data = state["a"].weight.data
    assert told(walk(state, memo)) == told(walk(state, Memo()))


def test_a_tensor_that_comes_to_lie_before_and_into_another() -> None:
    base = torch.arange(16.0)
    state, memo = {"a": torch.zeros(16)[4:10], "b": base[8:]}, Memo()
    walk(state, memo)
    state["a"] = base[4:10]
    assert told(walk(state, memo)) == told(walk(state, None))


def test_one_tensor_out_of_order_in_two_places() -> None:
    turned = torch.arange(6.0).view(2, 3).t()
    state, memo = {"a": turned, "b": turned}, Memo()
    for _ in range(3):
        assert told(walk(state, memo)) == told(walk(state, None))
        turned.add_(1)


def test_an_address_lies_in_a_storage() -> None:
    storage = torch.zeros(4).untyped_storage()
    begin = storage.data_ptr()
    places = (begin - 1, begin, begin + 15, begin + 16)
    assert [torch_memo._lies_in(place, storage) for place in places] == [False, True, True, False]


def test_a_memo_keeps_no_tensor_alive() -> None:
    memo = Memo()
    state = {"x": torch.randn(1000), "y": torch.randn(10, 10).t()}
    watched = [weakref.ref(tensor) for tensor in state.values()]
    walk(state, memo)
    walk(state, memo)
    state.clear()
    gc.collect()
    assert [reference() for reference in watched] == [None, None]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True), (1, 1.0), (0.0, -0.0), ("1", 1), (None, False), ([1], [True]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({"a": {"b": 1}}, {"a": {"b": 1.0}}),
        ({"$": "float", "v": "nan"}, {"$": "float", "v": "inf"}),
        ({"$": "tensor", "k": "a"}, {"$": "tensor", "k": "b"}),
    ],
)  # fmt: skip
def test_nodes_that_are_equal_but_not_the_same_have_texts_of_their_own(
    one: Any, other: Any
) -> None:
    memo = TextMemo()
    for node in ({"x": {"y": one}}, {"x": {"y": other}}, {"x": {"y": one}}):
        assert memo.dumps(node) == dumps(node)


def test_a_part_that_has_gone_leaves_no_text() -> None:
    memo = TextMemo()
    for node in ({"a": {"x": 1}, "b": {}}, {"b": {}}, {"a": {}, "b": {"x": 1}}, [], {"a": []}):
        assert memo.dumps(node) == dumps(node)


def test_an_error_leaves_no_text_of_another_node() -> None:
    memo = TextMemo()
    memo.dumps({"a": {"x": 1}})
    with pytest.raises(ValueError, match="JSON"):
        memo.dumps({"a": {"x": float("nan")}})
    assert memo.dumps({"a": {"x": 1}}) == dumps({"a": {"x": 1}})


@pytest.mark.parametrize("notes", [[{}, {"a": 0.5}, {}], [{}, None, {"a": 0.5}, None]])
def test_state_of_no_parameter_comes_and_goes(notes: list[dict[str, float] | None]) -> None:
    """Without a tensor in it, an optimizer is recalled all the same."""
    net = nn.Linear(3, 5)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    state, memo = {"net": net, "optim": optimizer}, Memo()
    states: Any = optimizer.state
    for note in notes:
        states.pop("note", None)
        if note is not None:
            states["note"] = note
        for _ in range(2):
            capture = walk(state, memo)
            assert told(capture) == told(walk(state))
            assert ('"other":' in capture.text) == (note is not None)
