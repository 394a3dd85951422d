"""Optimizers with wrappers, hooks, layouts and names of their own."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from testkit import momentum_over, save, state_bits
from torch import nn

import deepfreeze as df


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
