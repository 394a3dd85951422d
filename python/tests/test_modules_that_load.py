"""Modules with extra state, hooks and loaders of their own."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from testkit import Net, save
from torch import nn

import deepfreeze as df


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
