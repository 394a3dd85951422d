"""Places with one path, shared memory, and values that are easily stored wrongly."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from testkit import save
from torch import nn

import deepfreeze as df
from deepfreeze import _core
from deepfreeze.state.encoder import DEPTH_MAX


def module(value: float) -> nn.Module:
    made = nn.Linear(400, 400)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(value)
    return made


def table(value: float) -> dict[str, torch.Tensor]:
    """So many that the next walk knows it again."""
    return {f"t{i}": torch.full((100_000,), value + i) for i in range(20)}


def stored(ckpt: df.Checkpointer, step: int) -> int:
    """How many tensors that checkpoint has."""
    (info,) = [info for info in _core.list_checkpoints(str(ckpt.path)) if info.step == step]
    return len(_core.open_checkpoint(info).tensors())


def assert_loads(ckpt: df.Checkpointer, step: int, *expected: tuple[Any, Any]) -> None:
    for found, live in expected:
        values = live.state_dict() if isinstance(live, nn.Module) else live
        assert found.keys() == values.keys()
        assert all(torch.equal(found[name], value) for name, value in values.items()), step


@pytest.mark.parametrize("make", [module, table])
def test_places_that_have_one_path_are_not_taken_for_each_other(
    ckpt: df.Checkpointer, make: Any
) -> None:
    first, second, third = make(1), make(2), make(3)
    for step, (inner, outer) in enumerate(
        [(first, second), (first, second), (second, third), (second, third), (third, first)]
    ):
        save(ckpt, step, {"net": {"ema": inner}, "net.ema": outer})
        found = ckpt.load(step)
        assert_loads(ckpt, step, (found["net"]["ema"], inner), (found["net.ema"], outer))


@pytest.mark.parametrize(("make", "tensors"), [(module, 2), (table, 20)])
def test_memory_that_is_gone_is_not_read_for_another_place(
    ckpt: df.Checkpointer, make: Any, tensors: int
) -> None:
    first, second = make(1), make(2)
    for step in (1, 2):
        save(ckpt, step, {1: first, "1": second})
    del first
    gc.collect()
    save(ckpt, 3, {1: second, "1": second})
    found = ckpt.load(3)
    assert_loads(ckpt, 3, (found[1], second), (found["1"], second))
    assert stored(ckpt, 3) == tensors


def test_a_module_beside_a_dict_of_its_names(ckpt: df.Checkpointer) -> None:
    net = module(1)
    plain = {name: torch.full_like(value, 2) for name, value in net.state_dict().items()}
    for step in (1, 2):
        save(ckpt, step, {"1": plain, 1: net})
    plain = {name: torch.full_like(value, 3) for name, value in plain.items()}
    save(ckpt, 3, {"1": net, 1: plain})
    found = ckpt.load(3)
    assert_loads(ckpt, 3, (found["1"], net), (found[1], plain))


@pytest.mark.parametrize(
    "expand",
    [
        lambda w: w[:, :1].expand(4, 3),
        lambda w: w[:, None, 1].expand(4, 7),
        lambda w: w[::2, None, ::2].expand(2, 5, 3),
        lambda w: w[0, 0].expand(3, 2),
    ],
)
def test_an_expanded_part_is_restored_and_nothing_beside_it(
    ckpt: df.Checkpointer, expand: Any
) -> None:
    whole = torch.arange(20.0).view(4, 5)
    state = {"before": torch.ones(3), "part": expand(whole)}
    wanted = state["part"].clone()
    save(ckpt, 1, state)
    whole += 100
    before = whole.flatten().clone()
    assert ckpt.restore(state) == 1
    assert torch.equal(state["part"], wanted)
    beside = torch.ones(20, dtype=torch.bool)
    beside[expand(torch.arange(20).view(4, 5)).flatten()] = False
    assert torch.equal(whole.flatten()[beside], before[beside]), "what lies between was written"
    save(ckpt, 2, state)


class Fails:
    """Whose part of a restore goes wrong."""

    def state_dict(self) -> dict[str, int]:
        return {"x": 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        raise RuntimeError("on purpose")


def test_a_lenient_restore_does_not_make_good_what_it_does_not_touch(run: Path) -> None:
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 1, {"b": torch.ones(3)})
        save(ckpt, 2, {"a": torch.full((3,), 2.0), "b": torch.full((3,), 2.0), "f": Fails()})
        live: dict[str, Any] = {"a": torch.zeros(3), "b": torch.zeros(3), "f": Fails()}
        with pytest.raises(Exception, match="on purpose"):
            ckpt.restore(live, step=2)
        assert ckpt.restore(live, step=1, strict=False) == 1
        with pytest.raises(df.CheckpointError, match="half restored"):
            ckpt.save(3, live)


def test_long_doubles_are_stored(ckpt: df.Checkpointer) -> None:
    array = np.array([1, 2, 3], np.longdouble) / 3
    save(ckpt, 1, {"a": array, "t": torch.ones(2)})
    found = ckpt.load(1)["a"]
    assert found.dtype == array.dtype
    assert (found == array).all()


def momentum(parameters: list[nn.Parameter], values: list[float]) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for parameter, value in zip(parameters, values, strict=True):
        parameter.grad = torch.full_like(parameter, value)
    optimizer.step()
    return optimizer


def test_an_optimizers_state_does_not_follow_the_order_of_groups(ckpt: df.Checkpointer) -> None:
    one, other = nn.Linear(3, 3), nn.Linear(3, 3)
    optimizer = momentum([*one.parameters(), *other.parameters()], [1, 2, 3, 4])
    save(ckpt, 1, {1: one, "1": other, "optim": optimizer})
    again = momentum([*other.parameters(), *one.parameters()], [9, 9, 9, 9])
    ckpt.restore({1: one, "1": other, "optim": again})
    found = [again.state[p]["momentum_buffer"].mean() for p in [*one.parameters()]]
    assert found == [1, 2]


def test_groups_without_parameters_keep_their_order(ckpt: df.Checkpointer) -> None:
    net = nn.Linear(2, 2)

    def made(*rates: float) -> torch.optim.Optimizer:
        empty = [{"params": [], "lr": rate} for rate in rates]
        return torch.optim.SGD([{"params": net.parameters()}, *empty], lr=0.1)

    save(ckpt, 1, {"net": net, "optim": made(0.2, 0.3)})
    live = made(9, 9)
    ckpt.restore({"net": net, "optim": live})
    assert [group["lr"] for group in live.param_groups] == [0.1, 0.2, 0.3]
    more = made(9, 9, 9)
    ckpt.restore({"net": net, "optim": more}, strict=False)
    assert [group["lr"] for group in more.param_groups] == [0.1, 0.2, 0.3, 9]
    assert ckpt.last_restore is not None
    assert ckpt.last_restore.missing == ["optim.param_groups.3"]


def test_state_that_belongs_to_no_parameter_is_dropped_with_the_rest(
    ckpt: df.Checkpointer,
) -> None:
    net = nn.Linear(2, 2)
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
    save(ckpt, 1, {"net": net, "optim": optimizer})
    optimizer.state["calls"] = {"x": 1}
    ckpt.restore({"net": net, "optim": optimizer})
    assert not optimizer.state


@pytest.mark.parametrize(
    ("stored", "live", "said"),
    [
        (torch.eye(5).to_sparse(), torch.eye(3).to_sparse(), "float32[5, 5], live a sparse_coo"),
        (torch.eye(3).to_sparse_csr(), torch.eye(3).to_sparse_csc(), "stored a sparse_csr"),
        (torch.eye(3).to_sparse(), torch.eye(3).double().to_sparse(), "float64[3, 3]"),
        (
            torch.eye(3).to_sparse_csr(),
            torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8),
            "live a quantized tensor of qint8",
        ),
    ],
)
def test_another_kind_of_special_tensor_is_a_mismatch(
    ckpt: df.Checkpointer, stored: torch.Tensor, live: torch.Tensor, said: str
) -> None:
    save(ckpt, 1, {"s": stored})
    with pytest.raises(df.MismatchError) as raised:
        ckpt.restore({"s": live})
    assert said in str(raised.value)
    same = {"s": torch.zeros_like(stored)}
    assert ckpt.restore(same) == 1
    assert torch.equal(same["s"].to_dense(), stored.to_dense())


@pytest.mark.parametrize("value", [np.str_(""), np.bytes_(b""), np.str_("a"), np.bytes_(b"b")])
def test_empty_texts_of_numpy(ckpt: df.Checkpointer, value: np.generic) -> None:
    save(ckpt, 1, {"text": value})
    found = ckpt.load(1)["text"]
    assert (type(found), found) == (type(value), value)
    live = {"text": type(value)()}
    assert ckpt.restore(live) == 1
    assert live["text"] == value


def test_nan_as_a_key_of_plain_values(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"counted": {float("nan"): 4, 1.0: 5}, "x": torch.ones(2)})
    found = ckpt.load(1)["counted"]
    assert list(found.values()) == [4, 5]
    assert next(iter(found)) != next(iter(found))


def test_sets_of_plain_values(ckpt: df.Checkpointer) -> None:
    plain = {"numbers": {np.int64(1), np.int64(2)}, "kinds": frozenset({torch.float16, None})}
    save(ckpt, 1, plain)
    assert ckpt.load(1) == plain
    live = {"numbers": {np.int64(5)}, "kinds": frozenset[object]()}
    assert ckpt.restore(live) == 1
    assert live == plain


def nested_in_dicts(inner: object, depth: int) -> Any:
    for _ in range(depth):
        inner = {"in": inner}
    return inner


@pytest.mark.parametrize("inner", [1, torch.ones(2)])
def test_as_deep_as_can_be_saved_can_be_restored(ckpt: df.Checkpointer, inner: object) -> None:
    state = nested_in_dicts(inner, DEPTH_MAX - 5)
    save(ckpt, 1, state)
    ckpt.load(1)
    assert ckpt.restore(state) == 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({torch.ones(3)}, r"^a\.b: a set of more than plain values"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), r"^a\.b: a nested tensor"),
    ],
)
def test_what_would_not_come_back_is_not_saved(
    ckpt: df.Checkpointer, value: object, said: str
) -> None:
    with pytest.raises(df.EncodeError, match=said):
        ckpt.save(1, {"a": {"b": value}})


def test_one_parameter_of_a_lazy_module_is_refused(ckpt: df.Checkpointer) -> None:
    """A module that loads by itself is asked for all that it holds, or for nothing."""
    trained = nn.LazyLinear(3)
    trained(torch.ones(2, 5))
    save(ckpt, 1, {"net": trained})
    with pytest.raises(df.MismatchError, match=r"net\.weight: .*run a forward pass first"):
        ckpt.restore({"net": nn.LazyLinear(3)}, keys=["net.weight"])


@pytest.mark.parametrize("make", [torch.zeros, lambda n: np.zeros(n, ">f4")])
def test_one_memory_can_not_hold_what_was_stored_apart(ckpt: df.Checkpointer, make: Any) -> None:
    save(ckpt, 1, {"a": make(10) + 1, "b": make(10) + 2})
    both = make(10)
    with pytest.raises(df.MismatchError, match="b: it shares its memory with a"):
        ckpt.restore({"a": both, "b": both})
    assert (both == 0).all()
    ckpt.restore({"a": both, "b": both}, strict=False)
    assert (both == 1).all()  # the first takes it
    assert ckpt.last_restore is not None
    assert [*ckpt.last_restore.mismatched] == ["b"]
