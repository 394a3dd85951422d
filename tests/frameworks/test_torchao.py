"""torchao: quantised weights and the states of its low-bit optimizers, which are registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import deepfreeze as df

pytest.importorskip("torchao", reason="LEFT OUT: no torchao")
from torchao import optim as ao_optim
from torchao import quantization as ao
from torchao.optim.subclass_4bit import OptimState4bit
from torchao.optim.subclass_8bit import OptimState8bit
from torchao.optim.subclass_fp8 import OptimStateFp8
from torchao.quantization.quantize_.common import KernelPreference

for kind in (OptimState8bit, OptimState4bit, OptimStateFp8, ao.Int8Tensor, ao.Float8Tensor):
    df.register_type(kind, f"torchao.{kind.__name__}")
df.register_type(
    KernelPreference, "torchao.KernelPreference", lambda each: each.value, KernelPreference
)


def train(model: nn.Module, optim: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        optim.zero_grad()
        inputs = torch.randn(4, 128, generator=torch.Generator().manual_seed(step))
        model(inputs).square().sum().backward()
        optim.step()


@pytest.mark.parametrize("name", ["AdamW8bit", "AdamW4bit", "AdamWFp8"])
@pytest.mark.parametrize("used", [0, 1], ids=["fresh", "used"])
def test_a_low_bit_optimizer_goes_on_to_the_bit(tmp_path: Path, name: str, used: int) -> None:
    def made(seed: int) -> tuple[nn.Module, Any]:
        torch.manual_seed(seed)
        model = nn.Linear(128, 64)
        return model, getattr(ao_optim, name)(model.parameters(), lr=1e-2)

    model, optim = made(0)
    train(model, optim, range(2))
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"model": model, "optim": optim}).wait("durable")
        other, live = made(1)
        train(other, live, range(used))
        before = [id(state["exp_avg"]) for state in live.state.values()]
        ckpt.restore({"model": other, "optim": live})
        assert not used or before == [id(state["exp_avg"]) for state in live.state.values()]
    moment = live.state[other.weight]["exp_avg"]
    assert type(moment) is type(optim.state[model.weight]["exp_avg"])
    train(model, optim, range(2, 4))
    train(other, live, range(2, 4))
    for one, restored in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, restored)


@pytest.mark.parametrize(
    "config", [ao.Int8WeightOnlyConfig(version=2), ao.Float8WeightOnlyConfig()]
)
def test_quantised_weights_come_back_in_place(tmp_path: Path, config: Any) -> None:
    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(128, 64).bfloat16())
        ao.quantize_(model, config)
        return model

    model, live = made(0), made(1)
    weight = live[0].weight  # type: ignore[index]
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"model": model}).wait("durable")
        ckpt.restore({"model": live})
        loaded = ckpt.load()["model"]["0.weight"]
    assert live[0].weight is weight  # type: ignore[index]
    wanted = model[0].weight  # type: ignore[index]
    assert type(weight) is type(loaded) is type(wanted)
    for each in (weight, loaded):
        for name in wanted.__tensor_flatten__()[0]:
            assert torch.equal(getattr(each, name).float(), getattr(wanted, name).float())
