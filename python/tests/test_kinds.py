"""A value that has changed its kind since the state was made: as the program that did it restarts.

It comes back bit for bit, or is refused by a message with its name and both kinds.
"""

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from testkit import bits, same, save

import deepfreeze as df

INF = math.inf
NAN = math.nan


def alike(one: Any, other: Any) -> bool:
    """The same, type included; tensors bit for bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        forms = [(each.dtype, each.shape, each.layout) for each in (one, other)]
        return forms[0] == forms[1] and bits(one.to_dense()) == bits(other.to_dense())
    if isinstance(one, (list, tuple, deque)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        return [*one] == [*other] and all(map(alike, one.values(), other.values()))
    return same(one, other)


def plain(value: Any) -> Any:
    """Numbers in lists, whatever held them."""
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (INF, torch.tensor(0.5)),
        (INF, torch.tensor([0.5])),
        (0, torch.tensor(3)),
        (0.0, torch.tensor(NAN)),
        (0.0, torch.tensor(-0.0, dtype=torch.bfloat16)),
        (0.0, np.float32(0.1)),
        (0.0, np.array(0.1)),
        (0, np.int64(2**62)),
        (np.float64(1), torch.tensor(0.5)),
        (0, 0.5),
        (False, np.bool_(True)),
        (np.bool_(False), True),
        (False, torch.tensor(True)),
        (0j, torch.tensor(1 - 0j)),
        (0j, np.complex64(1j)),
        ("", np.str_("best")),
        ("a", np.array("best")),
        (np.str_("a"), "b"),
        (b"", np.bytes_(b"x")),
        (b"", bytearray(b"x")),
        ([], np.arange(3)),
        ([0.5], np.array([0.5, 0.25])),
        ([0.5], torch.tensor([0.5, NAN])),
        ([[1, 2]], np.ones((3, 2))),
        ([True], np.array([False, True])),
        (["a"], np.array(["a", "bc"])),
        ((1, 2), [1, 2, 3]),
        ((1, 2), deque([1, 2], maxlen=2)),
        ((1, 2), torch.Size([3])),
        ((1, 2), np.array([1, 2])),
        (torch.Size([1]), (1, 2)),
        (frozenset({1}), {1, 2}),
        (None, torch.ones(2)),
        (None, [torch.ones(2), 1]),
        (0.5, None),
        ([0.5], [0.5, torch.tensor(0.4)]),
        ([0.5], [torch.tensor(0.5), np.float32(0.4), 0.3]),
        ([], [torch.tensor(0.5)]),
        ([0.5, 0.4], [torch.tensor(0.5)]),
        ((0, 0), (torch.tensor(1), 2)),
        ({"acc": 0.0}, {"acc": torch.tensor(0.5), "f1": torch.tensor(0.25)}),
        ({"acc": 0.0, "old": 1}, {"f1": torch.ones(3)}),
        ({"a": {"b": [0]}}, {"a": {"b": [torch.tensor(1), torch.ones(2)]}}),
        (OrderedDict(a=1), OrderedDict(b=torch.ones(1), a=2)),
        (Counter(a=1), Counter({"a": np.int64(3)})),
    ],
    ids=str,
)
@pytest.mark.parametrize("strict", [True, False])
def test_what_was_plain_takes_the_stored_kind(
    ckpt: df.Checkpointer, first: Any, then: Any, strict: bool
) -> None:
    def state(value: Any) -> dict[str, Any]:
        inner = {"v": deepcopy(value), "w": torch.ones(1)}
        return {"v": value, "in": inner, "list": [torch.ones(1), deepcopy(value)]}

    save(ckpt, 1, state(then))
    live = state(first)
    ckpt.restore(live, strict=strict)
    for found in (live["v"], live["in"]["v"], live["list"][1]):
        assert alike(found, then)
    assert ckpt.last_restore is not None
    assert not ckpt.last_restore.mismatched
    save(ckpt, 2, live)


@pytest.mark.parametrize(
    ("live", "stored"),
    [
        (torch.tensor(INF), 0.5),
        (torch.tensor(INF), np.float32(0.1)),
        (torch.tensor([INF]), -0.0),
        (torch.tensor(0.0, requires_grad=True), NAN),
        (torch.tensor(0), 2**53 + 1),
        (torch.tensor(0), 3.0),
        (torch.tensor(0.0).half(), 1),
        (torch.tensor(False), True),
        (torch.tensor(0j), 1j),
        (torch.zeros(2), [0.5, -0.0]),
        (torch.zeros(2, 2).t(), ((1, 2), [3, 4])),
        (torch.zeros(0), []),
        (np.zeros(()), 0.1),
        (np.zeros(2, ">i4"), [1, 2]),
        (np.zeros(1), torch.tensor([0.1], dtype=torch.float64)),
        (torch.zeros(1), np.ones(1, np.float32)),
        (np.array("xxxx"), "best"),
        (np.zeros(4)[::2], (1, 2)),
    ],
    ids=str,
)
def test_a_live_tensor_takes_numbers_in_place(
    ckpt: df.Checkpointer, live: Any, stored: Any
) -> None:
    save(ckpt, 1, {"v": stored, "n": 1})
    state = {"v": live, "n": 0}
    before = (live.dtype, live.shape)
    ckpt.restore(state)
    assert state["v"] is live
    assert (live.dtype, live.shape) == before
    flat = np.ravel(live.detach().numpy() if isinstance(live, torch.Tensor) else live).tolist()
    wanted = np.ravel(np.array(plain(stored), dtype=None)).tolist()
    assert len(flat) == len(wanted)
    for one, other in zip(flat, wanted, strict=True):
        assert one == other or (one != one and other != other)
        assert not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other)


@pytest.mark.parametrize(
    ("live", "stored", "said"),
    [
        (torch.tensor(0.0), 0.1, "stored float, which the live array can't hold exactly"),
        (torch.tensor(0), 0.5, "stored float, which"),
        (torch.tensor(0), -0.0, "stored float, which"),
        (torch.tensor(0, dtype=torch.int8), 300, "stored int, which"),
        (torch.tensor(0), True, "stored bool, which"),
        (torch.tensor(False), 1, "stored int, which"),
        (torch.tensor(0.0), 1j, "stored complex, which"),
        (torch.tensor(0j), 1.0, "stored float, which"),
        (torch.tensor(0j), complex(0.1, 0), "stored complex, which"),
        (torch.tensor(0.0), "0", "stored str, which"),
        (torch.tensor(0.0), None, r"stored None, live a tensor of float32\[\]"),
        (torch.zeros(2), [0.5], "stored list of 1, which"),
        (torch.zeros(2), [0.5, [1]], "stored list of 2, which"),
        (torch.zeros(1), [0.5, {}], "stored list of 2, live a tensor"),
        (torch.zeros(1).expand(2), [1, 2], "no memory of its own"),
        (np.array("xx"), "best", "stored str, which"),
        (np.zeros(1), b"1", "stored bytes, which"),
        (0.0, torch.ones(2), r"stored tensor float32\[2\], live a float"),
        (0.0, torch.tensor(True), r"stored tensor bool\[\], live a float"),
        (False, torch.tensor(1), r"stored tensor int64\[\], live a bool"),
        (0.0, torch.tensor(1j), r"stored tensor complex64\[\], live a float"),
        ("1", torch.tensor(1), "live a str"),
        ([1], torch.tensor(1), "live a list of 1"),
        (["a"], torch.ones(2), "live a list of 1"),
        ([True], np.ones(2), "stored array float64"),
        ({"a": 1}, torch.ones(2), "live a dict of 1"),
        ({1}, np.ones(1), "live a set of 1"),
        ([1], (1, 2), "stored tuple of 2, live a list of 1"),
        (bytearray(b"1"), b"1", "stored bytes, live a bytearray"),
        ([0.5], [torch.ones(2)], r"stored tensor float32\[2\], live a float"),
        (np.datetime64("2020-01-01"), 3, "stored int, live a datetime64"),
        (0, np.timedelta64(3, "s"), "stored NumPy scalar <m8"),
    ],
    ids=str,
)  # fmt: skip
def test_what_means_something_else_is_refused_with_both_kinds(
    ckpt: df.Checkpointer, live: Any, stored: Any, said: str
) -> None:
    save(ckpt, 1, {"v": stored, "w": torch.ones(1)})
    state = {"v": live, "w": torch.zeros(1)}
    before = repr(live)
    with pytest.raises(df.MismatchError, match=rf"^v(\.0)?: .*{said}"):
        ckpt.restore(state)
    assert state["v"] is live
    assert repr(live) == before
    assert state["w"].item() == 0


KINDS: list[Callable[[], Any]] = [
    lambda: None, lambda: True, lambda: 0, lambda: 2**60 + 1, lambda: 0.1, lambda: -0.0,
    lambda: NAN, lambda: 1j, lambda: "text", lambda: b"bytes", lambda: bytearray(b"bytes"),
    lambda: [1, 2], lambda: [0.5], list, lambda: (1, 2), lambda: {"a": 1}, lambda: {1, 2},
    lambda: deque([1], maxlen=3), lambda: frozenset({1}), lambda: np.float32(0.1),
    lambda: np.bool_(True), lambda: np.int8(-1), lambda: np.str_("text"), lambda: np.complex64(1j),
    lambda: np.array(0.1), lambda: np.array([1, 2]), lambda: np.array([0.5], np.float32),
    lambda: torch.tensor(0.5), lambda: torch.tensor(7), lambda: torch.tensor(True),
    lambda: torch.tensor([0.5]), lambda: torch.tensor([1, 2]), lambda: torch.tensor(1j),
    lambda: torch.ones(2, 2).half(), lambda: torch.Size([1, 2]), lambda: torch.float32,
    lambda: [torch.ones(1)], lambda: {"a": torch.ones(1)}, lambda: (torch.ones(1), 1),
    lambda: torch.eye(2).to_sparse(),
]  # fmt: skip


def numbers(value: Any) -> Any:
    """A value as lists of Python's own numbers, to compare a live array that took a list."""
    if isinstance(value, (list, tuple)):
        return [numbers(item) for item in value]
    return plain(value)


def is_right(got: Any, live: Any, stored: Any) -> bool:
    """Whether the stored value is there, in place if an array was."""
    if isinstance(live, (list, tuple, dict)) and type(live) is type(got) is type(stored):
        inner = [[*(e.values() if isinstance(e, dict) else e)] for e in (got, live, stored)]
        return len(got) == len(stored) and (
            all(map(is_right, *inner)) if live else alike(got, stored)
        )
    is_sparse = isinstance(live, torch.Tensor) and live.is_sparse
    if is_sparse or not isinstance(live, (torch.Tensor, np.ndarray)):
        return alike(got, stored)
    one, other = np.ravel(numbers(got)), np.ravel(numbers(stored))
    exact = all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))
    kinds = {"b": "b", "c": "c"}
    return got is live and exact and kinds.get(one.dtype.kind) == kinds.get(other.dtype.kind)


def test_any_kind_into_any_other(ckpt: df.Checkpointer) -> None:
    """Nothing is different without a word, strict or not."""
    stored = {f"v{i}": make() for i, make in enumerate(KINDS)}
    save(ckpt, 1, stored)
    for make in KINDS:
        live = {name: make() for name in stored}
        before = dict(live)
        ckpt.restore(live, strict=False)
        assert ckpt.last_restore is not None
        report = ckpt.last_restore
        left = {*report.mismatched, *report.missing, *report.unexpected}
        for name, value in stored.items():
            if name in left or any(each.startswith(f"{name}.") for each in left):
                continue
            assert is_right(live[name], before[name], value), (make(), value, live[name])
        for name, value in stored.items():
            live = {name: make()}
            kept = live[name]
            said = refusal_of(ckpt, live, name)
            if said is None:
                assert is_right(live[name], kept, value), (make(), value)
            else:
                assert name in said
                assert live[name] is kept


def refusal_of(ckpt: df.Checkpointer, live: dict[str, Any], name: str) -> str | None:
    try:
        ckpt.restore(live, keys=[name])
    except df.MismatchError as error:
        return str(error)
    return None


def test_plain_values_that_share_live_memory(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"a": 1.0, "b": 2.0, "c": torch.ones(2)})
    memory = torch.zeros(3)
    live = {"a": memory[0], "b": memory[0], "c": memory[1:]}
    with pytest.raises(df.MismatchError, match="b: it shares its memory with a"):
        ckpt.restore(live)
    live = {"a": memory[0], "b": memory[1], "c": memory[1:]}
    with pytest.raises(df.MismatchError, match="c: it shares its memory with b"):
        ckpt.restore(live)
    assert memory.tolist() == [0, 0, 0]
    memory = torch.zeros(4)
    ckpt.restore({"a": memory[0], "b": memory[1], "c": memory[2:]})
    assert memory.tolist() == [1, 2, 1, 1]


def test_of_each_rank_and_in_what_keys_choose(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"own": df.per_rank(torch.tensor(0.5)), "a": np.float32(1), "b": torch.tensor(2)})
    own = df.per_rank(0.0)
    live: dict[str, Any] = {"own": own, "a": 0.0, "b": 0}
    ckpt.restore(live, keys=["own", "a"])
    assert isinstance(own.value, torch.Tensor)
    assert own.value.item() == 0.5
    assert (type(live["a"]), live["b"]) == (np.float32, 0)


def test_a_history_keeps_its_identity(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"history": [0.5, torch.tensor(0.4)], "w": torch.ones(1)})
    history = [0.5]
    ckpt.restore({"history": history, "w": torch.zeros(1)})
    assert [float(loss) for loss in history] == [0.5, pytest.approx(0.4)]
    assert isinstance(history[1], torch.Tensor)
