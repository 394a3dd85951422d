"""Memory for the first save is taken in the background, as soon as the state's size is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from torch import nn

import deepfreeze as df
from deepfreeze.frameworks.torch import guards
from deepfreeze.saving.attached import LazyCapture
from deepfreeze.saving.calls import Calls

SIDE = 64
BYTES = SIDE * SIDE * 4


class Told:
    """Notes the sizes that an engine is told to expect; all other calls are the engine's."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.sizes: list[int] = []
        self.devices: list[Sequence[int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def expect(self, size: int, devices: Sequence[int]) -> None:
        self.sizes.append(size)
        self.devices.append(devices)
        self._engine.expect(size, devices)


class Training:
    """Of one layer, by Adam; with the engine's ear."""

    def __init__(self, ckpt: df.Checkpointer) -> None:
        self.net = nn.Linear(SIDE, SIDE, bias=False)
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.state = {"net": self.net, "optimizer": self.optimizer}
        self.told = Told(ckpt._engine)
        ckpt._lazy._engine = self.told  # type: ignore[assignment]

    def update(self) -> None:
        self.net.weight.grad = torch.ones_like(self.net.weight)
        self.optimizer.step()

    @property
    def count_bytes(self) -> int:
        """Of the step count."""
        count: torch.Tensor = self.optimizer.state[self.net.weight]["step"]
        return count.nbytes


@pytest.fixture
def ckpt(tmp_path: Path) -> Iterator[df.Checkpointer]:
    with df.Checkpointer(tmp_path / "run") as opened:
        yield opened


def test_the_size_is_told_once_the_state_is_whole(ckpt: df.Checkpointer) -> None:
    training = Training(ckpt)
    ckpt.attach(training.optimizer)
    training.update()  # its hook runs before it makes the state
    assert training.told.sizes == []
    training.update()
    whole = 3 * BYTES + training.count_bytes
    assert training.told.sizes == [whole]
    assert training.told.devices == [[]]
    training.update()
    ckpt.attach(training.net)  # the same tensors, and a module may not be saved at all
    assert training.told.sizes == [whole]


def test_after_a_save_nothing_is_told(ckpt: df.Checkpointer) -> None:
    training = Training(ckpt)
    ckpt.attach(training.optimizer)
    ckpt.save(1, training.state).wait()  # type: ignore[union-attr]
    for _ in range(3):
        training.update()
    assert training.told.sizes == []


def test_many_optimizers_are_told_seldom_and_count_each_tensor_once(
    ckpt: df.Checkpointer,
) -> None:
    training = Training(ckpt)
    nets = [nn.Linear(SIDE, SIDE, bias=False) for _ in range(100)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    optimizers.append(torch.optim.SGD(nets[0].parameters(), lr=0.1))
    for optimizer in optimizers:
        ckpt.attach(optimizer)
    for _ in range(3):
        for net, optimizer in zip(nets, optimizers, strict=False):
            net.weight.grad = torch.ones_like(net.weight)
            optimizer.step()
    assert training.told.sizes[-1] >= 80 * BYTES
    assert len(training.told.sizes) < 30
    optimizers[-1].step()
    optimizers[-1].step()
    assert training.told.sizes[-1] <= 100 * BYTES


def test_a_restored_state_is_told_at_once(ckpt: df.Checkpointer, tmp_path: Path) -> None:
    training = Training(ckpt)
    training.update()
    ckpt.save(1, training.state).wait()  # type: ignore[union-attr]
    with df.Checkpointer(tmp_path / "run") as resumed:
        again = Training(resumed)
        resumed.attach(again.optimizer)
        resumed.restore(again.state)
        assert again.told.sizes == [3 * BYTES + again.count_bytes]


def test_without_targets_nothing_is_told_by_a_restore(
    ckpt: df.Checkpointer, tmp_path: Path
) -> None:
    """A program that only evaluates must not pay for saves."""
    training = Training(ckpt)
    ckpt.save(1, training.state).wait()  # type: ignore[union-attr]
    with df.Checkpointer(tmp_path / "run") as reader:
        again = Training(reader)
        reader.restore(again.state)
        assert again.told.sizes == []


def attached_among_four(ckpt: df.Checkpointer, weight: nn.Parameter) -> list[int]:
    """The sizes that one of four ranks tells for the weight and its momentum."""
    told = Told(ckpt._engine)
    lazy = LazyCapture(told, Calls(), rank_count=4)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.state[weight]["momentum_buffer"] = torch.zeros(SIDE, SIDE)
    lazy.attach(optimizer, "window")
    return told.sizes


def test_ranks_share_the_tensors_that_all_have(ckpt: df.Checkpointer) -> None:
    weight = nn.Parameter(torch.zeros(SIDE, SIDE))
    assert attached_among_four(ckpt, weight) == [2 * (BYTES // 4)]


@pytest.mark.parametrize(("copies", "share"), [(1, BYTES // 4), (2, BYTES // 8)])
def test_a_rank_has_its_part_of_a_tensor_with_those_that_have_the_same(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, copies: int, share: int
) -> None:
    class Part(nn.Parameter):
        """Stands for a DTensor, of which this rank has the first quarter."""

    quarter = torch.zeros(SIDE // 4, SIDE)
    monkeypatch.setattr(guards, "local_of", lambda _: quarter)
    monkeypatch.setattr(guards, "copies_of", lambda _: copies)
    weight = Part(torch.zeros(SIDE, SIDE))
    assert attached_among_four(ckpt, weight) == [share + BYTES // 4]


def test_an_expanded_tensor_counts_what_it_takes_up(ckpt: df.Checkpointer) -> None:
    weight = nn.Parameter(torch.zeros(1).expand(1 << 28))
    sizes = attached_among_four(ckpt, weight)
    assert sizes == [1 + BYTES // 4]


def test_optimizers_that_step_on_several_threads_go_on(ckpt: df.Checkpointer) -> None:
    nets = [nn.Linear(SIDE, SIDE) for _ in range(6)]
    optimizers = [torch.optim.Adam(net.parameters()) for net in nets]
    for optimizer in optimizers:
        ckpt.attach(optimizer)

    def train(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(5):
            for parameter in net.parameters():
                parameter.grad = torch.ones_like(parameter)
            optimizer.step()

    threads = [Thread(target=train, args=pair) for pair in zip(nets, optimizers, strict=True)]
    for thread in threads:
        thread.start()
    state = {"nets": nets, "optimizers": optimizers}
    ckpt.save(1, state).wait()  # type: ignore[union-attr]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_hook_that_fails_does_not_end_training(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(ckpt)
    ckpt.attach(training.optimizer)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(guards.OptimizerGuard, "memory", broken)
    for _ in range(3):
        training.update()
    assert training.told.sizes == []


def test_a_save_at_any_moment_after_attach_restores(tmp_path: Path) -> None:
    for updates in range(4):
        with df.Checkpointer(tmp_path / str(updates)) as ckpt:
            training = Training(ckpt)
            ckpt.attach(training.optimizer)
            for _ in range(updates):
                training.update()
            ckpt.save(1, training.state).wait()  # type: ignore[union-attr]
            weight = training.net.weight.detach().clone()
            training.update()
            ckpt.restore(training.state)
            assert torch.equal(training.net.weight, weight)
