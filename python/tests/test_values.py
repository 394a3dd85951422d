"""Plain values and NumPy arrays, and states that do not fit."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from testkit import same, save

import deepfreeze as df


@pytest.mark.parametrize(
    "state",
    [{}, [], {"a": {}}, [[], ()], {"only": "values", "n": [1, 2]}, {"z": torch.empty(0)}],
    ids=str,
)
def test_states_without_bytes(ckpt: df.Checkpointer, state: Any) -> None:
    save(ckpt, 1, state)
    assert str(ckpt.load()) == str(state)
    assert ckpt.restore(state) == 1


def test_numpy_arrays_and_scalars(ckpt: df.Checkpointer) -> None:
    state = {
        "f": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "strided": np.arange(10)[::3],
        "backwards": np.arange(4)[::-1],
        "zero_d": np.array(4.0),
        "empty": np.empty((0, 2), dtype=np.int8),
        "complex": np.array([1 + 2j, complex(math.nan, -0.0)]),
        "dates": np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
        "bools": np.array([True, False]),
        "scalar": np.float32(1.5),
        "int": np.uint64(2**64 - 1),
        "bool": np.bool_(True),
        "date": np.datetime64("2020-01-01"),
    }
    save(ckpt, 1, state)
    loaded = ckpt.load()
    for name, value in state.items():
        assert same(np.asarray(loaded[name]), np.asarray(value)), name
        assert type(loaded[name]) is type(value), name


def test_numpy_arrays_are_filled_in_place(ckpt: df.Checkpointer) -> None:
    array = np.arange(6.0).reshape(2, 3)
    save(ckpt, 1, {"c": array, "f": np.asfortranarray(array), "r": array, "s": np.float32(2)})
    frozen = np.zeros((2, 3))
    frozen.flags.writeable = False
    live: dict[str, Any] = {
        "c": np.zeros((2, 3)), "f": np.zeros((2, 3), order="F"), "r": frozen, "s": np.float32(0),
    }  # fmt: skip
    held = dict(live)
    ckpt.restore(live)
    assert live["c"] is held["c"]
    assert live["f"] is held["f"]
    for name in ("c", "f", "r"):
        assert same(np.asarray(live[name]), array), name
    assert not frozen.any()
    assert same(live["s"], np.float32(2))


@pytest.mark.parametrize("dtype", ["O", [("a", "f4")], "V3"])
def test_arrays_that_cannot_be_stored(ckpt: df.Checkpointer, dtype: Any) -> None:
    with pytest.raises(df.EncodeError, match=r"^a\.0"):
        ckpt.save(1, {"a": [np.zeros(2, dtype=dtype)]})


def test_plain_values_are_replaced_in_their_containers(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"epoch": 3, "best": None, "history": [1.0, 2.0], "cfg": {"a": 1, "b": (2,)}})
    history, cfg = [9.0], {"old": 1}
    live = {"epoch": 0, "best": 0.5, "history": history, "cfg": cfg}
    ckpt.restore(live)
    assert live == {"epoch": 3, "best": None, "history": [1.0, 2.0], "cfg": {"a": 1, "b": (2,)}}
    assert live["history"] is history
    assert live["cfg"] is cfg


def test_what_the_state_lacks_or_adds_is_named(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"model": torch.nn.Linear(2, 2), "gone": torch.ones(1), "n": 1})
    model = torch.nn.Linear(2, 2, bias=False)
    before = model.weight.clone()
    live = {"model": model, "n": 0, "new": {"x": torch.zeros(1), "y": 2}}
    with pytest.raises(df.MismatchError) as caught:
        ckpt.restore(live)
    message = str(caught.value)
    assert "missing in the checkpoint: new.x, new.y" in message
    assert "not in the state: model.bias, gone" in message
    assert not caught.value.state_modified
    assert torch.equal(model.weight, before)
    assert live["n"] == 0
    save(ckpt, 2, {"a": 1})  # nothing was modified, so saving goes on

    assert ckpt.restore(live, step=1, strict=False) == 1
    assert live["n"] == 1
    assert ckpt.last_restore is not None
    assert ckpt.last_restore.missing == ["new.x", "new.y"]
    assert ckpt.last_restore.unexpected == ["model.bias", "gone"]
    assert not torch.equal(model.weight, before)


@pytest.mark.parametrize(
    ("saved", "live", "text"),
    [
        (torch.ones(2), torch.zeros(3), r"stored float32\[2\], live float32\[3\]"),
        (torch.ones(2), torch.zeros(2).half(), r"stored float32\[2\], live float16\[2\]"),
        (torch.ones(2), 1.0, r"stored tensor float32\[2\], live a float"),
        (1.0, torch.ones(2), r"stored float, .* can't hold exactly"),
        (torch.nn.Linear(1, 1), torch.ones(1), r"stored module, live a"),
        (torch.ones(1), torch.nn.Linear(1, 1), r"live a module, Linear"),
        (torch.ones(1), torch.empty(1, device="meta"), r"live a tensor of float32\[1\] on meta"),
        (np.ones(2), np.ones(3), r"stored float64\[2\], live float64\[3\]"),
        (np.ones(2), torch.ones(2), r"stored float64\[2\], live float32\[2\]"),
        ((torch.ones(1), 1), (torch.ones(1),), r"stored a tuple of 2, live a tuple of 1"),
        (df.RNG(), torch.ones(1), r"stored stateful, live"),
        (df.RNG(), torch.nn.Linear(1, 1), r"stored stateful, live a module, Linear"),
        (torch.ones(1), torch.optim.SGD([torch.ones(1)]), r"live an optimizer, torch\.SGD"),
        (torch.nn.Linear(1, 1), torch.optim.SGD([torch.ones(1)]), r"stored module, live an opt"),
        (torch.ones(1), df.RNG(), r"live a (deepfreeze\.)?RNG"),
    ],
    ids=lambda value: "",
)
def test_what_does_not_fit_is_named_before_anything_changes(
    ckpt: df.Checkpointer, saved: Any, live: Any, text: str
) -> None:
    save(ckpt, 1, {"first": torch.ones(2), "a": [0, saved]})
    first, values = torch.zeros(2), [5, live]
    with pytest.raises(df.MismatchError, match=rf"a\.1: .*{text}.*; strict=False") as caught:
        ckpt.restore({"first": first, "a": values})
    assert not caught.value.state_modified
    assert first.tolist() == [0.0, 0.0]

    ckpt.restore({"first": first, "a": values}, strict=False)
    assert first.tolist() == [1.0, 1.0]
    assert values[0] == 0
    assert values[1] is live
    assert ckpt.last_restore is not None
    assert [*ckpt.last_restore.mismatched] == ["a.1"]
    assert re.search(text, ckpt.last_restore.mismatched["a.1"])


def test_a_state_of_another_kind_is_refused(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"a": 1})
    for state in ([1], 1, torch.ones(1)):
        with pytest.raises(df.MismatchError, match="a dict can only be restored into a dict"):
            ckpt.restore(state)
    save(ckpt, 2, [1])
    for other in ({"a": 1}, (1,), 1):
        with pytest.raises(df.MismatchError, match="a dict can only be restored into a dict"):
            ckpt.restore(other)


def test_an_unknown_registered_type_is_refused_first(ckpt: df.Checkpointer) -> None:
    from deepfreeze.state import registry

    class Own:
        pass

    df.register_type(Own, "test.own", lambda _: 1, lambda _: Own())
    save(ckpt, 1, {"x": torch.ones(1), "o": Own()})
    del registry.REGISTERED_NAMES["test.own"]
    live: dict[str, Any] = {"x": torch.zeros(1), "o": None}
    with pytest.raises(df.MismatchError, match=r"^o: the type 'test\.own' is not known"):
        ckpt.restore(live)
    assert live["x"].item() == 0
    ckpt.restore(live, strict=False)
    assert live["x"].item() == 1
    assert live["o"] is None
    assert ckpt.last_restore is not None
    assert [*ckpt.last_restore.mismatched] == ["o"]


def test_load_without_torch_gives_numpy(run: Path) -> None:
    import subprocess
    import sys

    with df.Checkpointer(run) as ckpt:
        base = torch.arange(6.0).view(2, 3)
        state = {"x": base, "view": base[:, 1], "c": torch.tensor([1j]), "size": torch.Size([2])}
        save(ckpt, 1, {**state, "h": torch.ones(2).bfloat16()})
    code = f"""
import sys, deepfreeze as df
ckpt = df.Checkpointer({str(run)!r})
loaded = ckpt.load(keys=["x", "view", "c", "size"])
print({{k: getattr(v, "tolist", lambda: v)() for k, v in loaded.items()}}, "torch" in sys.modules)
live = {{"x": None}}
print(ckpt.restore(live, keys=["x"]), live["x"].dtype)
try:
    ckpt.load(keys=["h"])
except df.CheckpointError as error:
    print(error.code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[:2] == [
        "{'x': [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], 'view': [1.0, 4.0], 'c': [1j], 'size': (2,)} "
        "False",
        "1 float32",
    ], done.stderr
    assert done.stdout.splitlines()[2:] in ([], ["unsupported"])


class Nesting:
    """An object whose state holds another object."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def state_dict(self) -> dict[str, Any]:
        return {"inner": [self.inner]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner = state["inner"][0]


@pytest.mark.parametrize("make", [df.RNG, lambda: torch.nn.Linear(1, 1), lambda: Nesting(1)])
def test_an_object_within_another_ones_state_is_refused(ckpt: df.Checkpointer, make: Any) -> None:
    with pytest.raises(df.EncodeError, match=r"^own\.own\.inner\.0: .*within the state of another"):
        ckpt.save(1, {"own": Nesting(make())})


@pytest.mark.parametrize("state", [(), (torch.ones(1),), torch.ones(1), df.RNG(), 1, None])
def test_a_state_that_could_not_be_restored_is_refused(ckpt: df.Checkpointer, state: Any) -> None:
    with pytest.raises(df.EncodeError, match="only a dict or a list"):
        ckpt.save(1, state)


@pytest.mark.parametrize(
    "state",
    [{"k" * 5000: torch.ones(1)}, {"a": torch.ones([1] * 40)}],
    ids=["a name of 5000 bytes", "40 dimensions"],
)
def test_what_the_format_cannot_hold_is_refused_by_save(ckpt: df.Checkpointer, state: Any) -> None:
    with pytest.raises(df.CheckpointError, match=r"kkk|a"):
        ckpt.save(1, state)
    assert ckpt.failed_saves == 0
    save(ckpt, 1, {"a": 1})
    assert ckpt.steps() == [1]


def test_one_dict_in_two_places_does_not_take_what_was_stored_apart(
    ckpt: df.Checkpointer,
) -> None:
    def both(first: int, second: int) -> dict[str, Any]:
        pair = [{"n": n, "array": np.zeros(0)} for n in (first, second)]
        return {"a": pair[0], "b": pair[1]}

    save(ckpt, 1, both(1, 2))
    save(ckpt, 2, both(3, 3))
    shared = both(0, 0)["a"]
    live = {"a": shared, "b": shared}
    with pytest.raises(df.MismatchError, match=r"b\.n: it is in the same dict as a\.n"):
        ckpt.restore(live, step=1)
    assert shared["n"] == 0
    ckpt.restore(live, step=1, strict=False)
    assert shared["n"] == 1
    assert ckpt.last_restore is not None
    assert [*ckpt.last_restore.mismatched] == ["b.n"]
    ckpt.restore(live, step=2)
    assert shared["n"] == 3


def test_one_list_in_two_places_does_not_take_what_was_stored_apart(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"a": [1], "b": [2]})
    shared = [0]
    with pytest.raises(df.MismatchError, match=r"b: it is in the same list as a"):
        ckpt.restore({"a": shared, "b": shared})
    assert shared == [0]
    save(ckpt, 2, {"a": [3], "b": [3]})
    ckpt.restore({"a": shared, "b": shared})
    assert shared == [3]
