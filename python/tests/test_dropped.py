"""A checkpointer that was dropped without close(): nothing of it stays on attached objects."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import deepfreeze as df

WIDTH = 256  # a weight of 256 KiB: captured after save() has returned


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(5)
    net = nn.Linear(WIDTH, WIDTH)
    optim = torch.optim.Adam(net.parameters(), lr=1e-2)
    step(net, optim)
    return net, optim


def step(net: nn.Module, optim: torch.optim.Optimizer) -> None:
    optim.zero_grad()
    net(torch.randn(8, WIDTH)).square().sum().backward()
    optim.step()


def copy_of(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def hooks_of(optim: torch.optim.Optimizer, net: nn.Module) -> dict[str, int]:
    """How many hooks of each kind."""
    return {
        name: len(hooks)
        for each in (optim, net, *net.parameters())
        for name, hooks in vars(each).items()
        if "hooks" in name and hooks is not None
    }


@pytest.mark.parametrize("mode", ["window", "after_update"])
def test_training_goes_on_and_the_save_in_flight_is_whole(run: Path, mode: Any) -> None:
    net, optim = trained()
    ckpt = df.Checkpointer(run, profile="latency")
    ckpt.attach(optim, mode=mode)
    expected = copy_of(net)
    handle = ckpt.save(1, {"net": net, "optim": optim})
    assert handle is not None
    assert handle.status().guarded_bytes > 0
    del ckpt
    gc.collect()
    step(net, optim)
    assert not torch.equal(expected["weight"], net.state_dict()["weight"])
    handle.wait("durable", timeout=60)
    with df.Checkpointer(run) as later:
        saved = later.load(1)["net"]
    assert all(torch.equal(saved[name], value) for name, value in expected.items())


def test_a_step_in_which_it_is_collected_goes_through(run: Path) -> None:
    """The optimizer is just going through its hooks, which must stay until it is done."""
    net, optim = trained()
    held = [df.Checkpointer(run)]

    def drop(*_: object) -> None:
        held.clear()
        gc.collect()

    optim.register_step_pre_hook(drop)
    held[0].attach(optim)
    passed: list[bool] = []
    optim.register_step_pre_hook(lambda *_: passed.append(True))
    step(net, optim)
    assert not held
    assert passed == [True]


def test_its_hooks_do_not_pile_up(tmp_path: Path) -> None:
    net, optim = trained()
    counts = []
    for number in range(3):
        ckpt = df.Checkpointer(tmp_path / str(number))
        ckpt.attach(optim, mode="after_update")
        counts.append(hooks_of(optim, net))
        del ckpt
        gc.collect()
    assert counts[0] == counts[1] == counts[2]
