"""Cases that a hostile review found: forged forms, shared memory, layouts, hooks, names, keys."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from testkit import Net, assert_same, save, state_bits
from torch import nn

import deepfreeze as df
from deepfreeze.frameworks import numpy as numpy_adapter
from deepfreeze.frameworks.torch import tensors as torch_tensors
from deepfreeze.frameworks.torch.adapter import TorchAdapter
from deepfreeze.state.dtypes import logical_form

# Forged forms


@pytest.mark.parametrize("name", ["object", "O", "|O", "O8", "f4,O", "<V8", "S0", "<U99999999999"])
def test_a_dtype_outside_the_closed_list_is_corrupt(name: str) -> None:
    with pytest.raises(df.CorruptError):
        numpy_adapter.numpy_dtype(name)


def test_a_forged_object_view_makes_no_pointers(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forged(tensor: torch.Tensor, offset: int) -> dict[str, Any]:
        return {"shape": [1], "stride": [1], "offset": 0, "dtype": "object"}

    monkeypatch.setattr(torch_tensors, "_view_node", forged)
    array = np.full(8, 0x4141414141414141)
    save(ckpt, 1, {"a": array, "b": array[2:4]})
    with pytest.raises(df.CorruptError, match="object"):
        ckpt.load(1)


@pytest.mark.parametrize(
    ("shape", "stride", "offset"),
    [([4], [1], 1), ([5], [1], 0), ([2], [4], 0), ([2], [1], -1), ([-1], [1], 0), ([2], [-1], 1)],
)
def test_a_forged_view_stays_in_its_entry(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, shape: Any, stride: Any, offset: int
) -> None:
    view = {"shape": shape, "stride": stride, "offset": offset, "dtype": "float32"}
    monkeypatch.setattr(torch_tensors, "_view_node", lambda *_: view)
    base = torch.arange(4.0)
    save(ckpt, 1, {"a": base, "b": base[1:3]})
    with pytest.raises(df.CorruptError, match="b: a view beyond its entry"):
        ckpt.load(1)


LIES = [
    ("F32", (4, 1), "uint8"), ("U8", (4, 4), "complex64"), ("U8", (4, 4), "float32"),
    ("U8", (4, 4), "float8_e8m0fnu"),
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES, ids=str)
@pytest.mark.parametrize("live", [True, False])
def test_a_logical_dtype_that_does_not_fit_is_corrupt(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, lie: Any, live: bool
) -> None:
    monkeypatch.setattr(torch_tensors, "NATIVE", {})  # so that it asks for each form
    monkeypatch.setattr(torch_tensors, "stored_form", lambda *_: lie)
    save(ckpt, 1, {"x": torch.ones(4)})
    monkeypatch.undo()
    state = {"x": torch.empty(4, dtype=getattr(torch, lie[2]))}
    with pytest.raises(df.CorruptError):
        ckpt.restore(state, step=1) if live else ckpt.load(1)


def test_a_form_is_what_stored_form_gives() -> None:
    assert logical_form("F32", (3, 2), "complex64") == ("complex64", (3,))
    for stored, shape, logical in [("F32", (3,), "complex64"), ("F64", (3, 2), "complex64"),
                                   ("X9", (3,), ""), ("U8", (), "float8_e8m0fnu")]:  # fmt: skip
        with pytest.raises(df.CorruptError):
            logical_form(stored, shape, logical)
    with pytest.raises(df.CorruptError, match="4 bytes, 16"):
        TorchAdapter().allocate("uint8", (4,), 16)


# Memory


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


# Optimizers


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}], ids=str)
def test_channels_last_resumes_bit_identically(
    ckpt: df.Checkpointer, options: dict[str, Any]
) -> None:
    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)
        return model, torch.optim.Adam(model.parameters(), lr=0.05, **options)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(3):
            optimizer.zero_grad()
            x = torch.randn(2, 4, 7, 7, generator=generator)
            model(x.to(memory_format=torch.channels_last)).pow(2).mean().backward()
            optimizer.step()

    model, optimizer = make()
    train(model, optimizer, 1)
    save(ckpt, 1, {"model": model, "optim": optimizer})
    live, resumed = make()
    ckpt.restore({"model": live, "optim": resumed})
    moment = resumed.state[live.weight]["exp_avg"]
    assert moment.stride() == live.weight.stride()  # type: ignore[operator]
    train(model, optimizer, 2)
    train(live, resumed, 2)
    assert state_bits(live) == state_bits(model)


def momentum_over(*modules: nn.Module) -> torch.optim.Optimizer:
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for number, parameter in enumerate(parameters):
        optimizer.state[parameter]["momentum_buffer"] = torch.full_like(parameter, number + 1.0)
    return optimizer


def test_parameters_whose_names_collide_keep_their_own_state(ckpt: df.Checkpointer) -> None:
    def modules() -> list[nn.Linear]:
        return [nn.Linear(2, 2, bias=False) for _ in range(4)]

    def state(one: Any, two: Any, three: Any, four: Any, swap: bool) -> dict[str, Any]:
        wrapped = nn.ModuleDict({"a": nn.ModuleDict({"b": three})})
        pairs = [("a.b", one), ("a", {"b": two}), ("whole", wrapped), ("c", four)]
        return dict(reversed(pairs) if swap else pairs)

    saved = modules()
    save(ckpt, 1, {**state(*saved, swap=False), "optim": momentum_over(*saved)})
    live = modules()
    resumed = torch.optim.SGD([m.weight for m in reversed(live)], lr=0.1, momentum=0.9)
    ckpt.restore({**state(*live, swap=True), "optim": resumed})
    for number, module in enumerate(live):
        buffer = resumed.state[module.weight]["momentum_buffer"]
        assert buffer.tolist() == [[number + 1.0] * 2] * 2


class Lookahead(torch.optim.Optimizer):
    """Wraps an optimizer, and has a state of its own beside it."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.optimizer = inner
        self.param_groups = inner.param_groups
        self.state = inner.state
        self.slow = 0

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        return {"inner": self.optimizer.state_dict(), "slow": self.slow}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.slow = state_dict["slow"]
        self.optimizer.load_state_dict(state_dict["inner"])


def test_a_wrapper_with_its_own_format_keeps_it(ckpt: df.Checkpointer) -> None:
    module = nn.Linear(2, 2)
    wrapper = Lookahead(momentum_over(module))
    wrapper.slow = 7
    save(ckpt, 1, {"model": module, "optim": wrapper})
    live = nn.Linear(2, 2)
    resumed = Lookahead(torch.optim.SGD(live.parameters(), lr=0.5, momentum=0.9))
    ckpt.restore({"model": live, "optim": resumed})
    assert resumed.slow == 7
    assert resumed.optimizer.state[live.bias]["momentum_buffer"].tolist() == [2.0, 2.0]


class Averaging(torch.optim.Optimizer):
    """Wraps an optimizer, has torch's own methods, and a state of its own."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.optimizer = inner


def test_a_wrapper_with_its_own_state_is_not_taken_for_what_it_wraps(
    ckpt: df.Checkpointer,
) -> None:
    module = nn.Linear(2, 2)
    wrapper = Averaging(momentum_over(module))
    wrapper.state[module.bias]["slow"] = torch.full((2,), 3.0)
    save(ckpt, 1, {"model": module, "optim": wrapper})
    live = Averaging(momentum_over(module))
    ckpt.restore({"model": module, "optim": live})
    assert live.state[module.bias]["slow"].tolist() == [3.0, 3.0]


def test_the_hooks_of_an_optimizer_run(ckpt: df.Checkpointer) -> None:
    calls: list[str] = []
    module = nn.Linear(2, 2)
    optimizer = momentum_over(module)
    optimizer.register_state_dict_pre_hook(lambda _: calls.append("save"))
    optimizer.register_load_state_dict_post_hook(lambda _: calls.append("load"))
    save(ckpt, 1, {"model": module, "optim": optimizer})
    ckpt.restore({"model": module, "optim": optimizer})
    assert calls == ["save", "load"]

    loaded: list[Any] = []
    optimizer.register_state_dict_post_hook(lambda _, state: {**state, "more": 5})
    optimizer.register_load_state_dict_pre_hook(lambda _, state: loaded.append(state.pop("more")))
    save(ckpt, 2, {"model": module, "optim": optimizer})
    ckpt.restore({"model": module, "optim": optimizer})
    assert loaded == [5]


# Modules


class Extra(nn.Module):
    def __init__(self, value: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((2,), float(value)))
        self.value = value

    def get_extra_state(self) -> int:
        return self.value

    def set_extra_state(self, state: int) -> None:
        self.value = state


class OwnLoad(Extra):
    def load_state_dict(self, sd: Mapping[str, Any]) -> Any:  # type: ignore[override]
        self.loads = getattr(self, "loads", 0) + 1
        return super().load_state_dict(sd)


def test_extra_state_survives_a_load_of_its_own(ckpt: df.Checkpointer) -> None:
    hooked = Extra(1)
    hooked.register_load_state_dict_post_hook(lambda *_: None)
    own = OwnLoad(1)
    save(ckpt, 1, {"hooked": Extra(5), "own": OwnLoad(6), "plain": Extra(7)})
    plain = Extra(1)
    ckpt.restore({"hooked": hooked, "own": own, "plain": plain})
    assert (hooked.value, own.value, plain.value, own.loads) == (5, 6, 7, 1)
    assert own.weight.tolist() == [6.0, 6.0]


class Derived(nn.Module):
    """Keeps something that is made from the loaded values."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.total = 0.0

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *more)
        self.total = float(self.weight.sum())


def test_a_submodule_that_loads_in_its_own_way_is_asked(ckpt: df.Checkpointer) -> None:
    model, live = nn.Sequential(Net(), Derived()), nn.Sequential(Net(), Derived())
    seen: list[float] = []
    inner: Any = live[1]
    live[0].register_load_state_dict_pre_hook(
        lambda m, state, prefix, *_: seen.append(float(state[prefix + "head.bias"][0]))
    )
    save(ckpt, 1, {"model": model})
    ckpt.restore({"model": live})
    assert inner.total == float(model[1].weight.sum())  # type: ignore[union-attr, operator]
    assert seen == [float(model[0].head.bias[0])]  # type: ignore[union-attr, index]


def test_a_name_that_no_one_takes_back_is_not_dropped(ckpt: df.Checkpointer) -> None:
    def make(value: float) -> nn.Module:
        model = nn.Linear(2, 2)
        nn.init.constant_(model.weight, value)

        def rename(_: nn.Module, state: dict[str, Any], prefix: str, __: Any) -> None:
            state[prefix + "compressed"] = state.pop(prefix + "weight").clone()

        model._register_state_dict_hook(rename)
        return model

    save(ckpt, 1, {"model": make(2.0)})
    with pytest.raises(df.MismatchError, match=r"model: .*compressed"):
        ckpt.restore({"model": make(1.0)})
    ckpt.restore({"model": make(1.0)}, strict=False)


# Keys


def test_keys_reach_the_state_of_optimizers(ckpt: df.Checkpointer) -> None:
    module = nn.Linear(2, 2)
    saved = torch.optim.SGD(module.parameters(), lr=0.3, momentum=0.9)
    saved.state["count"] = 5  # type: ignore[index]
    state = {"model": module, "optim": saved}
    save(ckpt, 1, state)

    def used() -> torch.optim.Optimizer:
        optimizer = momentum_over(module)
        optimizer.state["count"] = 1  # type: ignore[index]
        return optimizer

    live = used()
    ckpt.restore({"model": module, "optim": live}, keys=["optim.state.weight.*", "optim.*.lr"])
    assert live.state["count"] == 1  # type: ignore[index]
    assert module.weight not in live.state
    assert module.bias in live.state
    assert live.param_groups[0]["lr"] == 0.3

    live = used()
    ckpt.restore({"model": module, "optim": live}, keys=["optim.other.*"])
    assert live.state["count"] == 5  # type: ignore[index]
    assert module.weight in live.state


def test_the_name_of_an_object_chooses_all_in_it(ckpt: df.Checkpointer) -> None:
    module = nn.Linear(2, 2)
    optim = momentum_over(module)
    state = {"model": module, "optim": optim, "extra": {"scale": torch.ones(2)}}
    save(ckpt, 1, state)
    stored = module.weight.detach().clone(), optim.state[module.weight]["momentum_buffer"].clone()
    with torch.no_grad():
        for each in (module.weight, optim.state[module.weight]["momentum_buffer"]):
            each.add_(1)
        state["extra"]["scale"].add_(1)

    ckpt.restore(state, keys=["model"])
    assert torch.equal(module.weight, stored[0])
    assert not torch.equal(optim.state[module.weight]["momentum_buffer"], stored[1])
    ckpt.restore(state, keys=["opt*", "extra"])
    assert torch.equal(optim.state[module.weight]["momentum_buffer"], stored[1])
    assert torch.equal(state["extra"]["scale"], torch.ones(2))


@pytest.mark.parametrize("strict", [True, False])
def test_keys_that_match_nothing_are_an_error(ckpt: df.Checkpointer, strict: bool) -> None:
    module = nn.Linear(2, 2)
    sgd = torch.optim.SGD(module.parameters(), lr=0.1)
    state = {"model": module, "act": nn.ReLU(), "optim": sgd}
    save(ckpt, 1, state)
    with pytest.raises(df.MismatchError, match=r"keys modle\.\* match nothing"):
        ckpt.restore(state, keys=["model.*", "modle.*"], strict=strict)
    ckpt.restore(state, keys=["model.*", "act.*", "optim.state.*", "optim.*"], strict=strict)
