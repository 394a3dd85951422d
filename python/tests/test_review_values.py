"""Wrong values that a review found, each with the least that shows it."""

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


def module(value: float) -> nn.Module:
    made = nn.Linear(400, 400)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(value)
    return made


def table(value: float) -> dict[str, torch.Tensor]:
    """So many that the next walk knows it again."""
    return {f"t{i}": torch.full((100_000,), value + i) for i in range(20)}


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


@pytest.mark.parametrize("make", [module, table])
def test_memory_that_is_gone_is_not_read_for_another_place(
    ckpt: df.Checkpointer, make: Any
) -> None:
    first, second = make(1), make(2)
    for step in (1, 2):
        save(ckpt, step, {1: first, "1": second})
    del first
    gc.collect()
    save(ckpt, 3, {1: second, "1": second})
    found = ckpt.load(3)
    assert_loads(ckpt, 3, (found[1], second), (found["1"], second))


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
