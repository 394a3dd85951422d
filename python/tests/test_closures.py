"""Steps that are given a closure: forward and backward run inside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_window import OPTIMIZERS, Training, adam, assert_holds, copy_of
from torch import Tensor

import deepfreeze as df
from deepfreeze.saving.attached import LazyCapture


class ClimbsFirst(torch.optim.SGD):
    """Changes its parameters before it asks for gradients, as SAM does."""

    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.add_(1.0)
        return super().step(closure)


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fences, as they come; closures add themselves."""
    events: list[str] = []
    fence = LazyCapture.fence

    def noted(lazy: LazyCapture, guard: int) -> None:
        events.append("fence")
        fence(lazy, guard)

    monkeypatch.setattr(LazyCapture, "fence", noted)
    return events


def closure(training: Training, order: list[str]) -> Any:
    def gradients() -> Tensor:
        order.append("closure")
        training.optim.zero_grad()
        loss: Tensor = training.net(torch.randn(8, 256)).square().sum()
        loss.backward()
        return loss

    return gradients


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_fence_comes_after_the_closure(run: Path, name: str, order: list[str]) -> None:
    training = Training(OPTIMIZERS[name])
    with df.Checkpointer(run, profile="latency") as ckpt:
        ckpt.attach(training.optim)
        expected = {}
        for step in range(1, 4):
            expected[step] = copy_of(training.state)
            ckpt.save(step, training.state)
            training.optim.step(closure(training, order))
            training.optim.step(closure=closure(training, order))
        ckpt.wait()
        assert ckpt.failed_saves == 0
        assert order == 6 * ["closure", "fence"]
        for step, tensors in expected.items():
            assert_holds(ckpt, step, tensors)


def test_a_step_without_one_is_fenced_as_ever(ckpt: df.Checkpointer, order: list[str]) -> None:
    training = Training(adam)
    ckpt.attach(training.optim)
    training.step()
    assert order == ["fence"]


def test_what_calls_its_closure_often_is_fenced_before_it_changes_anything(
    ckpt: df.Checkpointer, order: list[str]
) -> None:
    training = Training(adam)
    training.optim = torch.optim.LBFGS(training.net.parameters(), max_iter=3)
    ckpt.attach(training.optim)
    training.optim.step(closure(training, order))
    assert order[:2] == ["closure", "fence"]


def test_an_optimizer_of_the_programs_own_is_fenced_before(
    ckpt: df.Checkpointer, order: list[str]
) -> None:
    training = Training(lambda p: ClimbsFirst(p, lr=1e-6))
    ckpt.attach(training.optim)
    training.optim.step(closure(training, order))
    assert order[0] == "fence"


def test_a_closure_that_raises_changes_nothing(ckpt: df.Checkpointer, order: list[str]) -> None:
    training = Training(adam)
    ckpt.attach(training.optim)
    expected = copy_of(training.state)

    def raises() -> Tensor:
        raise ArithmeticError

    handle = ckpt.save(1, training.state)
    with pytest.raises(ArithmeticError):
        training.optim.step(raises)
    assert handle is not None
    handle.wait()
    assert order == []
    assert_holds(ckpt, 1, expected)
