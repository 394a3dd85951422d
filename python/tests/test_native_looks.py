"""The native comparisons of a state with an earlier one, each by itself."""

from __future__ import annotations

import weakref

import pytest
import torch
from test_recall import expect_the_same, start
from torch import nn

from deepfreeze import _core
from deepfreeze.frameworks.torch.recall import ModuleParameters
from deepfreeze.state.memo import Memo


@pytest.fixture
def square() -> torch.Tensor:
    return torch.randn(4, 4)


@pytest.mark.parametrize("look", ["T", "unsqueezed", "first_column", "as_integers"])
def test_a_roll_call_sees_another_form(square: torch.Tensor, look: str) -> None:
    """Its memory begins where it began."""
    others = {
        "T": square.T,
        "unsqueezed": square.unsqueeze(-1),
        "first_column": square[:, 0],
        "as_integers": square.view(torch.int32),
    }
    roll = _core.RollCall([square])
    assert roll.answer([square.view(4, 4)]) is not None
    assert roll.answer([others[look]]) is None
    assert roll.answer([]) is None


@pytest.mark.parametrize("in_inference", [False, True])
def test_a_roll_call_sees_negation_in_all_modes(square: torch.Tensor, in_inference: bool) -> None:
    """Its memory, form and object are the same."""
    roll = _core.RollCall([square])
    with torch.inference_mode(in_inference):
        assert roll.answer([square]) is not None
    square.data = torch._neg_view(square.data)
    with torch.inference_mode(in_inference):
        assert roll.answer([square]) is None


def test_contents_are_those_of_all_dicts() -> None:
    one, other = object(), object()
    contents = _core.Contents([{"a": one}, {"b": other, "c": one}])
    assert contents.values_if_in([{"a": one}, {"b": other, "c": one}]) == [one, other, one]
    assert contents.values_if_in([{"a": one}]) is None
    assert contents.values_if_in([{"a": one}, {"c": one, "b": other}]) is None
    assert contents.values_if_in([{"a": one}, {"b": other}]) is None
    assert contents.values_if_in([{"a": one}, {"b": other, "c": other}]) is None
    numbered = {1: one}  # a key that is no string may compare as it likes
    assert _core.Contents([numbered]).values_if_in([numbered]) is None


def test_contents_keep_no_key_that_may_refer_to_them() -> None:
    class Key:
        """Of a dict."""

    key = Key()
    contents, seen = _core.Contents([{key: 1}]), weakref.ref(key)
    del key
    assert seen() is None
    assert contents.values_if_in([{"a": 1}]) is None


def test_records_of_other_lengths_are_refused() -> None:
    versions = _core.Versions([torch.zeros(1), torch.zeros(1)])
    with pytest.raises(ValueError, match="another number of tensors"):
        versions.again([torch.zeros(1)])
    with pytest.raises(ValueError, match="different lengths"):
        _core.differing([1], [])


def test_values_are_compared_with_their_place_or_by_address() -> None:
    tensors, others = [object(), object()], [object(), object()]
    values = [tensors[1], others[0]]
    placed = _core.Placed(values, tensors)
    assert placed.places() == [1, -1]
    assert placed.are(values, tensors)
    moved = [object(), object()]
    assert placed.are([moved[1], others[0]], moved)  # another object, in the same place
    assert not placed.are(values, moved)
    assert not placed.are([tensors[0], others[0]], tensors)
    assert not placed.are([tensors[1], others[1]], tensors)
    assert not placed.are(values, tensors[:1])
    assert not placed.are(values[:1], tensors)


def test_lists_differ_by_identity() -> None:
    one, other = [1], [1]
    assert _core.differing([one, other, one], [one, one, one]) == [1]


def test_modules_that_no_other_has_are_not_known() -> None:
    """Nothing but a module that has it tells whether it is alive."""
    outer, inner, stranger = nn.Sequential(nn.Linear(1, 1)), nn.Linear(1, 1), nn.Linear(1, 1)
    outer.append(inner)
    assert _core.Modules([outer, outer[0], inner], []).kinds_if_same(outer) is not None
    assert _core.Modules([outer, stranger, inner], []).kinds_if_same(outer) is None
    assert _core.Modules([outer, inner, outer[0]], []).kinds_if_same(inner) is None


def test_a_method_that_one_class_gets_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class within the module, and not the module's own."""
    state, memo = start(14), Memo()
    for _ in range(3):
        expect_the_same(state, memo, [])
    monkeypatch.setattr(nn.BatchNorm1d, "get_extra_state", lambda _: {"more": 1})
    expect_the_same(state, memo, ["a method of BatchNorm1d"])


def test_the_parameters_of_a_module_are_those_that_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    known = ModuleParameters(net)

    def expect_the_named() -> None:
        for _ in range(3):
            assert [*map(id, known.now())] == [*map(id, net.parameters())]

    expect_the_named()
    net[0].weight = nn.Parameter(torch.zeros(2, 2))
    expect_the_named()
    net.append(nn.Linear(2, 2))
    expect_the_named()
    net[3].weight = net[0].weight  # named once
    expect_the_named()
    net[1].bias = None
    expect_the_named()
    monkeypatch.setattr(nn.Linear, "named_modules", lambda *_, **__: iter(()))
    expect_the_named()
    monkeypatch.setattr(nn.Sequential, "_named_members", lambda *_, **__: iter(()))
    expect_the_named()
    assert known.now() == []
