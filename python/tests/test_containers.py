"""Live containers keep their identity, and take only values of their kind."""

from collections import Counter, OrderedDict, deque
from typing import Any

import numpy as np
import pytest
import torch
from testkit import same, save

import deepfreeze as df


def test_a_tuple_becomes_another_value_and_another_value_a_tuple(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"h": {"a": 1, "b": (1, [2])}, "x": torch.ones(1)})
    live = {"h": {"a": (0, [0]), "b": 0}, "x": torch.zeros(1)}
    ckpt.restore(live)
    assert live["h"] == {"a": 1, "b": (1, [2])}


def test_nested_containers_keep_their_identity(ckpt: df.Checkpointer) -> None:
    def make(n: int) -> dict[str, Any]:
        return {
            "x": torch.full((2,), float(n)),
            "h": {"z": {"loss": [n, [n]]}, "a": (n, [n])},
            "list": [[n], {"k": n}], "set": {n}, "queue": deque([n], 3),
            "bytes": bytearray([n]), "count": Counter({n: n}), "od": OrderedDict([(n, [n])]),
        }  # fmt: skip

    stored, live = make(1), make(2)
    stored["h"] = {"new": [1], **stored["h"]}
    stored["list"].append([5])
    inner = live["h"]["z"]["loss"]
    held = [
        live["h"], live["h"]["z"], inner, inner[1], live["h"]["a"][1], live["list"],
        *live["list"], live["set"], live["queue"], live["bytes"], live["count"], live["od"],
    ]  # fmt: skip
    save(ckpt, 1, stored)
    ckpt.restore(live)
    inner = live["h"]["z"]["loss"]
    now = [
        live["h"], live["h"]["z"], inner, inner[1], live["h"]["a"][1], live["list"],
        *live["list"][:2], live["set"], live["queue"], live["bytes"], live["count"], live["od"],
    ]  # fmt: skip
    assert all(one is other for one, other in zip(held, now, strict=True))
    del stored["x"], live["x"]
    assert same(stored, live)  # in order of keys too


def test_one_live_list_in_two_places_takes_only_one_value(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"h": [[1], [2]]})
    one = [0]
    live = {"h": [one, one]}
    ckpt.restore(live)
    assert live == {"h": [[1], [2]]}


def test_a_live_deque_keeps_its_own_bound(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"q": deque([1, 2, 3], 3)})
    live = {"q": deque([9], 2)}
    held = live["q"]
    ckpt.restore(live)
    assert live["q"] is held
    assert (list(held), held.maxlen) == ([2, 3], 2)


def test_plain_data_may_change_its_keys_and_structure_may_not(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"history": {"loss": [0.5, np.float32(1)], "new": 2}, "m": {"t": torch.ones(1)}})
    live: Any = {"history": {"old": [np.float64(1)]}, "m": {"t": torch.zeros(1)}}
    ckpt.restore(live)
    assert same(live["history"], {"loss": [0.5, np.float32(1)], "new": 2})
    live["m"]["extra"] = 1
    with pytest.raises(df.MismatchError, match=r"missing in the checkpoint: m\.extra"):
        ckpt.restore(live)
    with pytest.raises(df.MismatchError, match="missing in the checkpoint: top"):
        ckpt.restore({**live, "m": {"t": torch.zeros(1)}, "top": 1})


@pytest.mark.parametrize(
    ("stored", "live"),
    [
        ([(1, [2]), (3,)], [(0,), (0, [0])]),
        ([{"a": 1}, [2], {3}, deque([4])], [[1], {"a": 2}, [3], {4}]),
    ],
)
def test_within_plain_data_lengths_and_containers_may_change(
    ckpt: df.Checkpointer, stored: Any, live: Any
) -> None:
    save(ckpt, 1, {"h": stored})
    state = {"h": live}
    ckpt.restore(state)
    assert state["h"] is live
    assert same(live, stored)


@pytest.mark.parametrize(
    ("stored", "live"),
    [
        ([1], deque([2])), (deque([2]), [1]), (1, [1]), ("1", 1), (1, "1"), (True, 1), (1, True),
        ("f", np.float32(1)), (np.bool_(True), np.float32(1)), ({"a": 1}, torch.float32),
        (torch.float32, "float32"), (torch.float32, torch.Size([1])), ((1,), [1]), ([1], {}),
        ({"a": 1}, []), ({1}, [1]), (b"1", bytearray(b"1")),
    ],
)  # fmt: skip
def test_another_kind_of_value_is_a_mismatch_under_strict(
    ckpt: df.Checkpointer, stored: Any, live: Any
) -> None:
    save(ckpt, 1, {"a": {"v": stored, "t": torch.ones(1)}})
    state = {"a": {"v": live, "t": torch.zeros(1)}}
    with pytest.raises(df.MismatchError, match=r"a\.v: stored .*, live a") as caught:
        ckpt.restore(state)
    assert not caught.value.state_modified
    ckpt.restore(state, strict=False)
    assert same(state["a"]["v"], stored)


@pytest.mark.parametrize(
    ("stored", "live"),
    [
        (1.5, 1), (1, 1.5), (np.float64(2), float("inf")), (2.5, np.float32(1)), (1 << 60, 0),
        ([1], None), (None, 1), (None, [1]), (torch.int8, torch.float32), ({"a": 1}, {}),
        (float("nan"), 1.0), (b"x" * 9000, b""),
    ],
)  # fmt: skip
def test_numbers_are_one_kind_and_none_takes_any(
    ckpt: df.Checkpointer, stored: Any, live: Any
) -> None:
    save(ckpt, 1, {"v": stored})
    state = {"v": live}
    ckpt.restore(state)
    assert same(state["v"], stored)


@pytest.mark.parametrize(
    "key",
    [
        np.int64(1), np.float32(1), torch.float32, torch.Size([1]), (1, np.int64(2)),
        torch.device("cpu"), b"x" * 5000, frozenset([torch.int8]),
    ],
)  # fmt: skip
def test_a_key_that_could_not_be_read_again_is_refused(ckpt: df.Checkpointer, key: Any) -> None:
    with pytest.raises(df.EncodeError, match=r"^outer\..*as a key of a dict"):
        ckpt.save(1, {"outer": {key: 1}})
    assert ckpt.steps() == []
