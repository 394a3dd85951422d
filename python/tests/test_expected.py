"""Memory for the first save is taken in the background, as soon as the state's size is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
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
    """What an engine is told to expect; the rest is the engine's."""

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


def test_the_size_of_what_is_attached_is_told_until_a_save(ckpt: df.Checkpointer) -> None:
    training = Training(ckpt)
    ckpt.attach(training.optimizer)
    assert training.told.sizes == [BYTES]
    training.update()  # its hook runs before it makes the state
    assert training.told.sizes == [BYTES, BYTES]
    training.update()
    whole = 3 * BYTES + training.count_bytes
    assert training.told.sizes == [BYTES, BYTES, whole]
    training.update()
    ckpt.attach(training.net)  # the same tensors count once
    assert training.told.sizes == [BYTES, BYTES, whole, whole]
    assert training.told.devices == [[]] * 4
    ckpt.save(1, training.state).wait()  # type: ignore[union-attr]
    ckpt.attach(nn.Linear(SIDE, SIDE))
    training.update()
    assert len(training.told.sizes) == 4


def test_a_restored_state_is_told_at_once(ckpt: df.Checkpointer, tmp_path: Path) -> None:
    training = Training(ckpt)
    training.update()
    ckpt.save(1, training.state).wait()  # type: ignore[union-attr]
    with df.Checkpointer(tmp_path / "run") as resumed:
        again = Training(resumed)
        resumed.attach(again.optimizer)
        resumed.restore(again.state)
        assert again.told.sizes == [BYTES, 3 * BYTES + again.count_bytes]


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


def test_ranks_share_the_tensors_that_all_have(ckpt: df.Checkpointer) -> None:
    told = Told(ckpt._engine)
    lazy = LazyCapture(told, Calls(), rank_count=4)  # type: ignore[arg-type]
    lazy.attach(nn.Linear(SIDE, SIDE, bias=False), "window")
    assert told.sizes == [BYTES // 4]


def test_a_rank_has_its_part_of_a_tensor_alone(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Part(nn.Parameter):
        """Stands for a DTensor, of which this rank has the first quarter."""

    monkeypatch.setattr(guards, "local_of", lambda tensor: tensor.detach()[: SIDE // 4])
    told = Told(ckpt._engine)
    net = nn.Linear(SIDE, SIDE, bias=False)
    net.weight = Part(net.weight.detach())
    lazy = LazyCapture(told, Calls(), rank_count=4)  # type: ignore[arg-type]
    lazy.attach(net, "window")
    assert told.sizes == [BYTES // 4]


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
