"""Large dicts that changed between two saves are never recalled as they were."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from test_recall import State, expect_the_same
from torch import nn

from deepfreeze.saving.capture import walk
from deepfreeze.state.memo import Memo

Large = dict[Any, Any]


class Text(str):
    """A string of a kind of its own."""


def rename_first(large: Large) -> None:
    items = list(large.items())
    large.clear()
    large.update({"renamed": items[0][1], **dict(items[1:])})


def first_as_number(large: Large) -> None:
    items = list(large.items())
    large.clear()
    large.update({7: items[0][1], **dict(items[1:])})


def first_as_text(large: Large) -> None:
    """The key equals the old one, but is no name."""
    items = list(large.items())
    large.clear()
    large.update({Text(items[0][0]): items[0][1], **dict(items[1:])})


def last_first(large: Large) -> None:
    items = list(large.items())
    large.clear()
    large.update([items[-1], *items[:-1]])


def fresh_aliases(large: Large) -> None:
    large.update({name: value.detach() for name, value in large.items()})


LARGE_CHANGES: dict[str, Callable[[Large], object]] = {
    "nothing": lambda large: None,
    "written": lambda large: large["t3"].add_(1),
    "moved": lambda large: large.update(t3=torch.randn(3, 2)),
    "other shape": lambda large: large.update(t3=torch.randn(6)),
    "other dtype": lambda large: large.update(t3=large["t3"].view(torch.int32)),
    "tied": lambda large: large.update(t3=large["t4"]),
    "alias": fresh_aliases,
    "one less": lambda large: large.pop("t5"),
    "one more": lambda large: large.update(more=torch.ones(2)),
    "renamed": rename_first,
    "number as key": first_as_number,
    "text as the key that was": first_as_text,
    "number behind all": lambda large: large.update(more=7),
    "text as key": lambda large: large.update({Text("text"): torch.ones(2)}),
    "order": last_first,
    "plain value": lambda large: large.update(t3=3.0),
    "sparse": lambda large: large.update(t3=torch.eye(3).to_sparse()),
    "array": lambda large: large.update(t3=np.ones(3)),
    "nested": lambda large: large.update(t3={"x": torch.ones(2)}),
    "unknown": lambda large: large.update(t3=object()),
}


def ordered(state: State) -> None:
    other = OrderedDict if type(state["large"]) is dict else dict
    state["large"] = other(state["large"])


def large_state() -> dict[str, Any]:
    torch.manual_seed(0)
    large = {f"t{i}": torch.randn(3, 2) for i in range(20)}
    return {"before": torch.ones(2), "large": large, "after": [torch.ones(3)]}


@pytest.mark.parametrize("change", LARGE_CHANGES)
def test_a_large_dict_that_changed_is_not_recalled_as_it_was(change: str) -> None:
    state, memo = large_state(), Memo()
    for _ in range(3):
        expect_the_same(state, memo, [])
    LARGE_CHANGES[change](state["large"])
    for _ in range(2):
        expect_the_same(state, memo, [change])


@pytest.mark.parametrize("seed", range(20))
def test_a_large_dict_after_many_changes(seed: int) -> None:
    draw = random.Random(seed)
    state, memo, changes = large_state(), Memo(), []
    for _ in range(12):
        change = draw.choice([*LARGE_CHANGES])
        try:
            LARGE_CHANGES[change](state["large"])
        except (AttributeError, KeyError, TypeError, RuntimeError):  # after others it can't
            continue
        changes.append(change)
        expect_the_same(state, memo, changes)
        if draw.randrange(4) == 0:
            ordered(state)
            expect_the_same(state, memo, [*changes, "ordered"])


def test_a_state_dict_is_recalled_though_its_tensors_are_new_objects() -> None:
    net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(10)))
    memo = Memo()
    for _ in range(3):
        walk({"net": net.state_dict()}, memo)
    before = memo.recalls._dicts[0, "net"]
    walk({"net": net.state_dict()}, memo)
    assert memo.recalls._dicts[0, "net"] is before


def many_tensors() -> dict[str, torch.Tensor]:
    return {f"t{i}": torch.randn(3) for i in range(20)}


def test_dicts_that_have_the_same_path() -> None:
    state, memo = {"a": {"b": many_tensors()}, "a.b": many_tensors()}, Memo()
    for _ in range(3):
        expect_the_same(state, memo, [])
    state["more"] = {"x": torch.ones(2)}
    for _ in range(2):
        expect_the_same(state, memo, ["more"])


def test_a_dict_that_comes_to_have_the_path_of_another() -> None:
    state: State = {"a": {"b": many_tensors()}}
    memo = Memo()
    expect_the_same(state, memo, [])
    state["a.b"] = many_tensors()
    for _ in range(2):
        expect_the_same(state, memo, ["a.b"])
    state["more"] = torch.ones(2)
    expect_the_same(state, memo, ["a.b", "more"])


def test_a_module_and_a_dict_that_have_the_same_path() -> None:
    net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(10)))
    state, memo = {"a": {"b": net}, "a.b": net.state_dict()}, Memo()
    for _ in range(3):
        expect_the_same(state, memo, [])
    state["a.b"] = {name: value.clone() for name, value in net.state_dict().items()}
    state["more"] = torch.ones(2)
    for _ in range(2):
        expect_the_same(state, memo, ["cloned"])
