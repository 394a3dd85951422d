"""Tensors that do not change share a file; a fork shares all files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import deepfreeze as df

_FROZEN = 4_500_000  # floats: 18 MB


class Tuned:
    """A frozen base and an adapter that is trained."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.base = torch.nn.Parameter(torch.randn(_FROZEN), requires_grad=False)
        self.adapter = torch.nn.Linear(32, 32)
        self.optimizer = torch.optim.AdamW(self.adapter.parameters())

    def state(self) -> dict[str, object]:
        return {"base": self.base, "adapter": self.adapter, "optimizer": self.optimizer}

    def train(self) -> None:
        self.optimizer.zero_grad()
        self.adapter(torch.ones(1, 32)).sum().backward()
        self.optimizer.step()


def trained(run: Path, steps: int, **options: bool) -> list[df.SaveStatus]:
    it, statuses = Tuned(), []
    with df.Checkpointer(run, **options) as ckpt:
        for step in range(1, steps + 1):
            it.train()
            handle = ckpt.save(step, it.state())
            assert handle is not None
            handle.wait("durable")
            statuses.append(handle.status())
    return statuses


def test_a_frozen_base_is_written_twice_and_then_shared(tmp_path: Path) -> None:
    statuses = trained(tmp_path / "run", 9)
    assert [status.bytes_shared > 0 for status in statuses[-3:]] == [True] * 3
    assert statuses[-1].bytes_written < 100_000
    assert statuses[-1].bytes_shared == 4 * _FROZEN
    it = Tuned()
    with torch.no_grad():
        it.base.zero_()
    with df.Checkpointer(tmp_path / "run") as ckpt:
        assert ckpt.restore(it.state()) == 9
    assert torch.equal(it.base, Tuned().base)


def test_a_checkpointer_can_write_all_of_it_each_time(tmp_path: Path) -> None:
    statuses = trained(tmp_path / "run", 7, reuse_unchanged=False)
    assert [status.bytes_shared for status in statuses] == [0] * 7


def test_a_fork_goes_on_from_its_step_and_outlives_the_parent(tmp_path: Path) -> None:
    trained(tmp_path / "run", 3)
    new = df.fork(tmp_path / "run", 2, tmp_path / "new")
    assert new == tmp_path / "new"
    with df.Checkpointer(tmp_path / "run", keep=df.keep(last=1)) as parent:
        parent.restore(Tuned().state())
        parent.save(4, Tuned().state())
    it = Tuned()
    with df.Checkpointer(new) as ckpt:
        assert ckpt.restore(it.state()) == 2
        it.train()
        ckpt.save(3, it.state())
    with df.Checkpointer(new) as ckpt:
        assert [info.step for info in ckpt.checkpoints()] == [3, 2]


def test_a_fork_needs_a_step_that_is_there(tmp_path: Path) -> None:
    trained(tmp_path / "run", 1)
    with pytest.raises(df.CheckpointError, match="no checkpoint of step 7"):
        df.fork(tmp_path / "run", 7, tmp_path / "new")
    df.fork(tmp_path / "run", 1, tmp_path / "new")
    with pytest.raises(df.CheckpointError, match="choose a new directory"):
        df.fork(tmp_path / "run", 1, tmp_path / "new")
