"""Registered subclasses of torch.Tensor, wherever a value can stand."""

from collections.abc import Iterator
from operator import is_
from pathlib import Path
from typing import Any

import pytest
import torch
from testkit import assert_same, save
from torch import nn
from torch.utils._python_dispatch import return_and_correct_aliasing

import deepfreeze as df
from deepfreeze.state import registry


class Tagged(torch.Tensor):
    """Adds nothing but its type."""


class Copied(torch.Tensor):
    """Its to_tree gives a copy, so that nothing can be filled in place."""


class Scaled(torch.Tensor):
    """A wrapper of 8-bit codes and a scale, as quantised weights and optimizer states are."""

    def __new__(cls, codes: torch.Tensor, scale: torch.Tensor, signed: bool) -> "Scaled":
        made: Scaled = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, codes.shape, dtype=torch.float32, device=codes.device
        )
        return made

    def __init__(self, codes: torch.Tensor, scale: torch.Tensor, signed: bool) -> None:
        self.codes, self.scale, self.signed = codes, scale, signed

    def __tensor_flatten__(self) -> tuple[list[str], list[Any]]:
        return ["codes", "scale"], [self.signed]

    @classmethod
    def __tensor_unflatten__(
        cls, tensors: dict[str, torch.Tensor], context: list[Any], size: Any, stride: Any
    ) -> "Scaled":
        return cls(tensors["codes"], tensors["scale"], *context)

    def dequantize(self) -> torch.Tensor:  # type: ignore[override]
        return self.codes.float() * self.scale

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        if func in (aten.detach.default, aten.clone.default, aten._to_copy.default):
            one = args[0]
            made = cls(func(one.codes), func(one.scale), one.signed)
            return return_and_correct_aliasing(func, args, kwargs or {}, made)
        if func is aten.copy_.default:
            args[0].codes.copy_(args[1].codes)
            args[0].scale.copy_(args[1].scale)
            return args[0]
        plain = [each.dequantize() if isinstance(each, Scaled) else each for each in args]
        return func(*plain, **(kwargs or {}))


def scaled(value: int, *shape: int, signed: bool = True) -> Scaled:
    return Scaled(
        torch.full(shape or (2, 3), value, dtype=torch.int8), torch.ones(1) * value, signed
    )


def tagged(value: float, count: int = 2) -> torch.Tensor:
    return torch.full((count,), float(value)).as_subclass(Tagged)


@pytest.fixture(autouse=True)
def _types() -> Iterator[None]:
    tables: list[dict[Any, Any]] = [registry.REGISTERED, registry.REGISTERED_NAMES]
    before = [dict(table) for table in tables]
    df.register_type(
        Tagged, "test.tagged",
        lambda x: x.as_subclass(torch.Tensor), lambda x: x.as_subclass(Tagged),
    )  # fmt: skip
    df.register_type(
        Copied, "test.copied",
        lambda x: x.as_subclass(torch.Tensor).clone(), lambda x: x.as_subclass(Copied),
    )  # fmt: skip
    df.register_type(Scaled, "test.registered.scaled")
    yield
    for table, old in zip(tables, before, strict=True):
        table.clear()
        table.update(old)


def report(ckpt: df.Checkpointer) -> df.RestoreReport:
    assert ckpt.last_restore is not None
    return ckpt.last_restore


def assert_scaled(one: Any, value: int) -> None:
    assert type(one) is Scaled
    assert one.codes.eq(value).all()
    assert one.scale.item() == value


def test_in_dicts_lists_and_tuples(ckpt: df.Checkpointer) -> None:
    def state(value: int) -> dict[str, Any]:
        more = {"own": df.per_rank(scaled(value)), "none": scaled(value) if value else None}
        return {"x": tagged(value), "list": [scaled(value), 1], "tuple": (scaled(value),), **more}

    save(ckpt, 1, state(7))
    live = state(0)
    held = [live["x"], live["list"][0], live["tuple"][0], live["own"].value]
    ckpt.restore(live)
    now = [live["x"], live["list"][0], live["tuple"][0], live["own"].value]
    assert all(map(is_, now, held))
    assert type(live["x"]) is Tagged
    assert live["x"].tolist() == [7, 7]
    for each in (*held[1:], live["none"]):
        assert_scaled(each, 7)
    loaded = ckpt.load()
    assert type(loaded["x"]) is Tagged
    assert_scaled(loaded["list"][0], 7)


def test_what_is_a_copy_is_replaced(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"x": torch.ones(2).as_subclass(Copied), "w": torch.ones(1)})
    first = torch.zeros(2).as_subclass(Copied)
    live = {"x": first, "w": torch.zeros(1)}
    ckpt.restore(live)
    assert type(live["x"]) is Copied
    assert live["x"].tolist() == [1, 1]


class Net(nn.Module):
    def __init__(self, value: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(scaled(value), requires_grad=False)
        self.bias = nn.Parameter(tagged(value))
        self.copied = nn.Parameter(torch.full((2,), float(value)).as_subclass(Copied))
        self.register_buffer("seen", tagged(value))
        self.inner = nn.Linear(2, 2)


def test_parameters_and_buffers_of_a_module(ckpt: df.Checkpointer) -> None:
    saved, live = Net(5), Net(0)
    save(ckpt, 1, {"net": saved})
    save(ckpt, 2, {"net": saved})  # a module is known again from the last save
    held = dict(live.named_parameters())
    ckpt.restore({"net": live})
    for name, each in live.named_parameters():
        assert each is held[name], name
    assert_scaled(live.weight, 5)
    for one in (live.bias, live.copied, live.seen):
        assert one.tolist() == [5, 5]  # type: ignore[operator]
    assert type(live.bias) is Tagged
    assert_same(live.inner.weight, saved.inner.weight)


def test_a_changed_part_is_stored_at_the_next_save(ckpt: df.Checkpointer) -> None:
    net = Net(5)
    state = {"net": net}
    save(ckpt, 1, state)
    weight: Any = net.weight
    weight.codes = torch.full((2, 3), 6, dtype=torch.int8)
    weight.scale.fill_(6)
    save(ckpt, 2, state)
    assert_scaled(ckpt.load()["net"]["weight"], 6)


class Momentum(torch.optim.Optimizer):
    """Keeps one 8-bit state for each parameter."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: Any = None, value: int = 1) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter].setdefault("moment", scaled(0, *parameter.shape))
                self.state[parameter]["moment"].copy_(scaled(value, *parameter.shape))


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
@pytest.mark.parametrize("attached", [False, True], ids=["alone", "attached"])
def test_states_of_an_optimizer(ckpt: df.Checkpointer, used: bool, attached: bool) -> None:
    def made() -> tuple[nn.Module, Momentum]:
        net = nn.Conv2d(2, 2, 2).to(memory_format=torch.channels_last)
        return net, Momentum(net.parameters())

    net, optim = made()
    optim.step(value=9)
    if attached:
        ckpt.attach(optim)
    save(ckpt, 1, {"net": net, "optim": optim})
    optim.step(value=4)
    ckpt.detach()
    other, live = made()
    if used:
        live.step(value=2)
    before = {p: s["moment"] for p, s in live.state.items()}
    ckpt.restore({"net": other, "optim": live})
    for parameter in other.parameters():
        assert_scaled(live.state[parameter]["moment"], 9)
        assert not used or live.state[parameter]["moment"] is before[parameter]
    live.step(value=3)
    assert_scaled(live.state[other.weight]["moment"], 3)


@pytest.mark.parametrize(
    ("live", "said"),
    [
        (lambda: scaled(0, 3, 3), r"x\.codes: stored tensor int8\[2, 3\], live int8\[3, 3\]"),
        (lambda: scaled(0, signed=False), "x: its Scaled differs in values beside the tensors"),
        (lambda: tagged(0), r"x: stored test\.registered\.scaled, live a Tagged"),
        (
            lambda: torch.zeros(2, 3),
            r"x: stored test\.registered\.scaled, live a tensor of float32\[2, 3\]",
        ),
    ],
)
def test_what_does_not_fit(ckpt: df.Checkpointer, live: Any, said: str) -> None:
    save(ckpt, 1, {"x": scaled(5), "w": torch.ones(1)})
    one = live()
    state = {"x": one, "w": torch.zeros(1)}
    with pytest.raises(df.MismatchError, match=said):
        ckpt.restore(state)
    assert state["w"].item() == 0
    ckpt.restore(state, strict=False)
    assert state["x"] is one
    assert state["w"].item() == 1
    assert len(report(ckpt).mismatched) == 1
    holders = [nn.Module(), nn.Module()]
    for holder, value in zip(holders, (scaled(5), one), strict=True):
        holder.register_buffer("x", value)
    save(ckpt, 2, {"net": holders[0]})
    with pytest.raises(df.MismatchError, match=r"^net\.x.*: stored|^net\.x: its"):
        ckpt.restore({"net": holders[1]})


def test_a_stored_tensor_does_not_go_into_a_registered_one(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"x": torch.ones(2)})
    with pytest.raises(df.MismatchError, match=r"x: stored tensor float32\[2\], live a Tagged"):
        ckpt.restore({"x": tagged(0)})


def test_without_being_registered_it_is_refused_by_name(ckpt: df.Checkpointer, run: Path) -> None:
    class Unknown(torch.Tensor):
        pass

    with pytest.raises(df.EncodeError, match=r"^x: .*Unknown can't .*df\.register_type"):
        ckpt.save(1, {"x": torch.ones(1).as_subclass(Unknown)})
    del registry.REGISTERED[Scaled]
    net = nn.Module()
    net.register_buffer("weight", scaled(1))
    cases: list[tuple[Any, Any]] = [(torch.ones(2, 3), scaled(1)), (nn.Linear(1, 1), net)]
    for stored, live in cases:
        save(ckpt, 1, {"x": stored})
        with pytest.raises(df.MismatchError, match=r"a Scaled, which df\.register_type does not"):
            ckpt.restore({"x": live})
    with pytest.raises(TypeError, match="Unknown needs to_tree and from_tree"):
        df.register_type(Unknown, "test.unknown")
    with pytest.raises(TypeError, match="needs to_tree and from_tree"):
        df.register_type(Scaled, "test.other", lambda x: x.codes)


def test_a_registered_object_with_a_state_dict_comes_back_as_registered(
    ckpt: df.Checkpointer,
) -> None:
    class Both:
        def __init__(self, n: int) -> None:
            self.n = n

        def state_dict(self) -> dict[str, int]:
            return {"n": -1}

        def load_state_dict(self, state: dict[str, int]) -> None:
            raise AssertionError

    df.register_type(Both, "test.both", lambda x: x.n, Both)
    save(ckpt, 1, {"x": Both(3), "w": torch.ones(1)})
    live = {"x": Both(0), "w": torch.zeros(1)}
    ckpt.restore(live)
    assert live["x"].n == 3  # type: ignore[union-attr]
