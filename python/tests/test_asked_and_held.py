"""Modules that load by themselves, values of unknown types, and objects that others hold."""

import copy
import gc
from typing import Any

import numpy as np
import pytest
import torch
from testkit import assert_same, save
from torch import nn

import deepfreeze as df
from deepfreeze.state import registry


class Old(nn.Module):
    """Has one parameter under a name that its successors have given up."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.old = nn.Parameter(torch.randn(*shape))


class Asked(nn.Module):
    """Takes `old` as `b`."""

    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Parameter(torch.zeros(3))

    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        if f"{prefix}old" in state:
            state[f"{prefix}b"] = state.pop(f"{prefix}old")
        super()._load_from_state_dict(state, prefix, *rest)


class Split(nn.Module):
    """Cuts one stored tensor into three, which are no stored tensors themselves."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        for name in "qkv":
            setattr(self, name, nn.Parameter(torch.zeros(2, 4, dtype=dtype)))

    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        for name, part in zip("qkv", state.pop(f"{prefix}old").chunk(3), strict=True):
            state[f"{prefix}{name}"] = part
        super()._load_from_state_dict(state, prefix, *rest)


def test_a_part_of_a_stored_tensor_is_not_rounded(ckpt: df.Checkpointer) -> None:
    stored = Old(6, 4)
    save(ckpt, 1, {"m": stored})
    live = Split(torch.bfloat16)
    with pytest.raises(df.MismatchError, match=r"m\.q: stored float32\[2, 4\].*bfloat16"):
        ckpt.restore({"m": live})
    assert not live.q.any()  # type: ignore[operator, union-attr]
    exact = Split(torch.float64)
    ckpt.restore({"m": exact})
    assert torch.equal(exact.k.float(), stored.old[2:4])  # type: ignore[operator, union-attr]


class Interrupted(Asked):
    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state, prefix, *rest)
        raise KeyboardInterrupt


def test_an_interrupt_leaves_no_half_loaded_module(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"m": Old(3)})
    live = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        ckpt.restore({"m": live})
    assert live.b.tolist() == [0, 0, 0]


class Rude(Asked):
    """Replaces memory, and changes the contents of its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.facts, self.seen, self.loose = {"n": 0}, [1], torch.zeros(2)

    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        self.b.data = torch.ones(3, dtype=torch.bfloat16)
        self.facts["n"] = 7
        self.seen.append(2)
        self.loose.fill_(5)
        super()._load_from_state_dict({}, prefix, *rest)


def test_a_refused_module_has_its_memory_and_attributes_again(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"m": Old(3)})
    live = Rude()
    live.b.data.fill_(0.3)
    before, address = copy.deepcopy(live.b), live.b.data_ptr()
    with pytest.raises(df.MismatchError) as caught:
        ckpt.restore({"m": live})
    assert not caught.value.state_modified
    assert_same(live.b, before)
    assert live.b.data_ptr() == address
    assert (live.facts, live.seen, live.loose.tolist()) == ({"n": 0}, [1], [0, 0])


def test_memory_of_a_module_that_is_asked_is_not_read_into(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"m": Old(3), "z": torch.full((3,), 9.0)})
    live = Asked()
    with pytest.raises(df.MismatchError, match=r"z: it shares its memory with m\.b"):
        ckpt.restore({"m": live, "z": live.b.data})


def test_an_alias_of_a_module_that_is_asked_is_no_conflict(ckpt: df.Checkpointer) -> None:
    def made(*, more: bool) -> dict[str, Any]:
        module = nn.Sequential(Asked())
        if more:
            module[0].more = nn.Parameter(torch.ones(1))  # type: ignore[assignment]
        return {"m": module, "alias": module[0].b.data}

    stored = made(more=True)
    stored["m"][0].b.data.fill_(4)
    save(ckpt, 1, stored)
    live = made(more=False)
    ckpt.restore(live, strict=False)
    assert live["alias"].tolist() == [4, 4, 4]
    assert ckpt.last_restore is not None
    assert ckpt.last_restore.unexpected == ["m.0.more"]
    assert not ckpt.last_restore.mismatched


def test_two_places_of_one_dotted_name_are_both_written(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"a.b": 1.0, "a": {"b": 2.0}, "x": torch.ones(1)})
    live: dict[str, Any] = {
        "a.b": torch.zeros(()), "a": {"b": torch.zeros(())}, "x": torch.zeros(1),
    }  # fmt: skip
    ckpt.restore(live)
    assert (live["a.b"].item(), live["a"]["b"].item()) == (1, 2)


class Stubborn(Asked):
    def _load_from_state_dict(self, *_: Any) -> None:
        raise RuntimeError("not me")


def test_state_of_a_module_that_refuses_all_stays_too(ckpt: df.Checkpointer) -> None:
    stored = Asked()
    stored.more = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.Adam(stored.parameters())
    stored.b.sum().backward()
    optimizer.step()
    save(ckpt, 1, {"m": stored, "o": optimizer})
    live = Stubborn()
    other = torch.optim.Adam(live.parameters())
    ckpt.restore({"m": live, "o": other}, strict=False)
    assert not other.state
    assert ckpt.last_restore is not None
    assert {"m", "m.b", "o.state.b"} <= ckpt.last_restore.mismatched.keys()


class Extra(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.inner = nn.Parameter(torch.ones(3)), nn.Linear(2, 2)

    def get_extra_state(self) -> object:
        return Special()

    def set_extra_state(self, state: object) -> None:
        pass


class Special:
    pass


def test_one_entry_of_an_unknown_type_stays_alone(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "test.review_restore.special"
    df.register_type(Special, name, lambda _: 1, lambda _: Special())
    stored, live = Extra(), Extra()
    save(ckpt, 1, {"m": stored})
    monkeypatch.delitem(registry.REGISTERED_NAMES, name)
    ckpt.restore({"m": live}, strict=False)
    assert_same(live.inner.weight, stored.inner.weight)
    assert ckpt.last_restore is not None
    assert ckpt.last_restore.mismatched.keys() == {"m._extra_state"}


class Counter:
    step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]


class Trainer(Counter):
    def __init__(self) -> None:
        self.sampler = Counter()


def test_a_held_object_in_step_with_its_holder_is_stored(ckpt: df.Checkpointer) -> None:
    stored, live = Trainer(), Trainer()
    stored.step = stored.sampler.step = 5
    save(ckpt, 1, {"t": stored})
    ckpt.restore({"t": live})
    assert (live.step, live.sampler.step) == (5, 5)


class Average:
    def __init__(self) -> None:
        self.t = np.ones(1 << 12)

    def state_dict(self) -> dict[str, Any]:
        return {"t": self.t}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.t[:] = state["t"]
        self.given = state["t"].base if state["t"].base is not None else state["t"]


def test_what_was_read_for_an_object_is_let_go(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"e": Average()})
    live = Average()
    gc.collect()
    gc.disable()
    try:
        ckpt.restore({"e": live})
        import weakref

        given = weakref.ref(live.given)
        del live.given
        assert given() is None
    finally:
        gc.enable()


def test_elements_that_share_a_byte_are_refused(ckpt: df.Checkpointer) -> None:
    scales, zeros = torch.rand(4) + 0.1, torch.rand(4)
    packed = torch.quantize_per_channel(torch.randn(4, 8), scales, zeros, 0, torch.quint4x2)
    with pytest.raises(df.EncodeError, match="q: a tensor of"):
        ckpt.save(1, {"q": packed})


def test_a_metric_beyond_all_floats_is_named(ckpt: df.Checkpointer) -> None:
    with pytest.raises(TypeError, match="metrics: 'loss'"):
        ckpt.save(1, {"x": 1}, metrics={"loss": 10**400})


class Doubled(nn.DataParallel):
    """A wrapper with a parameter that has the name of one within."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.weight = nn.Parameter(torch.full((1, 1), 5.0))


def test_two_names_that_would_become_one_stay_apart(ckpt: df.Checkpointer) -> None:
    stored, live = Doubled(nn.Linear(1, 1)), Doubled(nn.Linear(1, 1))
    stored.weight.data.fill_(8)
    save(ckpt, 1, {"m": stored})
    ckpt.restore({"m": live})
    assert_same(live.weight, stored.weight)
    assert_same(live.module.weight, stored.module.weight)  # type: ignore[arg-type]
