"""Saved bits come back in the saved dtype, whichever way an object is filled."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from testkit import assert_same, save
from torch import nn

import deepfreeze as df


class Master(torch.optim.Optimizer):
    """Keeps fp32 state beside bf16 weights, and quantised and nested state."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["master"] = p.float().clone()
                state["bytes"] = torch.arange(p.numel(), dtype=torch.uint8)
                state["nested"] = [{"mean": torch.full((3,), 1 / 3)}]
                state["step"] = torch.zeros(())
            state["master"].sub_(0.1 * p.grad.float())
            state["step"] += 1
            p.copy_(state["master"])


class OwnLoader(Master):
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)


class OwnFormat(Master):
    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        return {"base": super().state_dict(), "version": 2}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state_dict.pop("version")
        super().load_state_dict(state_dict.pop("base"))


def hooked(parameters: Any) -> torch.optim.Optimizer:
    optimizer = Master(parameters)
    optimizer.register_load_state_dict_pre_hook(lambda optimizer, state: None)
    return optimizer


def make(kind: Callable[[Any], torch.optim.Optimizer], steps: int) -> dict[str, Any]:
    torch.manual_seed(0)
    p = nn.Parameter(torch.randn(64).bfloat16())
    optimizer = kind([p])
    for _ in range(steps):
        p.grad = torch.full_like(p, 0.001)
        optimizer.step()
    return {"p": p, "o": optimizer}


@pytest.mark.parametrize("kind", [Master, OwnLoader, OwnFormat, hooked])
@pytest.mark.parametrize("used", [0, 1], ids=["fresh", "used"])
def test_state_of_bf16_parameters(ckpt: df.Checkpointer, kind: Any, used: int) -> None:
    saved, live = make(kind, 3), make(kind, used)
    save(ckpt, 1, saved)
    ckpt.restore(live)
    one, other = saved["o"].state[saved["p"]], live["o"].state[live["p"]]
    for key in ("master", "bytes", "step"):
        assert_same(other[key], one[key])
    assert_same(other["nested"][0]["mean"], one["nested"][0]["mean"])
    for state in (saved, live):
        state["p"].grad = torch.full_like(state["p"], 0.002)
        state["o"].step()
    assert_same(live["p"], saved["p"])


class Average:
    """Weights in fp32, which its loader casts."""

    def __init__(self, cast: Callable[[torch.Tensor], torch.Tensor], copies: bool) -> None:
        self.mean = torch.linspace(0, 1, 7)
        self.cast, self.copies = cast, copies

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean.clone() if self.copies else self.mean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean = self.cast(state["mean"])


CASTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "other dtype": lambda t: t.bfloat16(),
    "rounded": lambda t: t.half().float(),
    "widened": lambda t: t.double(),
}


@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_an_object_whose_loader_casts(ckpt: df.Checkpointer, cast: Any) -> None:
    saved = Average(cast, copies=False)
    saved.mean += 1 / 3
    save(ckpt, 1, {"ema": saved})
    live = Average(cast, copies=False)
    ckpt.restore({"ema": live})
    assert_same(live.mean, saved.mean)


@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_what_nothing_can_put_back_is_an_error(ckpt: df.Checkpointer, cast: Any) -> None:
    saved = Average(cast, copies=True)
    saved.mean += 1 / 3
    save(ckpt, 1, {"ema": saved})
    with pytest.raises(df.MismatchError, match=r"ema\.mean: stored float32, .*casts"):
        ckpt.restore({"ema": Average(cast, copies=True)})
    live = Average(cast, copies=True)
    ckpt.restore({"ema": live}, strict=False)
    assert ckpt.last_restore is not None
    assert "float32" in ckpt.last_restore.mismatched["ema.mean"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loader_that_makes_something_else_of_it_is_its_own_affair(
    ckpt: df.Checkpointer, dtype: torch.dtype
) -> None:
    def negated(tensor: torch.Tensor) -> torch.Tensor:
        return -tensor.to(dtype)

    save(ckpt, 1, {"ema": Average(negated, copies=False)})
    live = Average(negated, copies=False)
    ckpt.restore({"ema": live})
    assert_same(live.mean, -torch.linspace(0, 1, 7).to(dtype))
