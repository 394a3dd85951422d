"""Value ranges, and the checkpoints that stay of a run that diverged."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

import deepfreeze as df


def steps_of(run: Path) -> list[int]:
    return [info.step for info in df._core.list_checkpoints(str(run))]


def save(ckpt: df.Checkpointer, step: int, *values: float) -> df.SaveHandle:
    handle = ckpt.save(step, {"w": torch.tensor(values), "n": torch.tensor([step])})
    assert handle is not None
    handle.wait()
    return handle


def test_a_state_that_diverged_is_counted_and_never_best(tmp_path: Path) -> None:
    rules = df.keep(last=1, best=("loss", "min"))
    with df.Checkpointer(tmp_path / "run", keep=rules, statistics=True) as ckpt:
        for step, values in enumerate([(1.0, 2.0), (3.0, 4.0), (float("nan"), float("inf"))]):
            handle = ckpt.save(step, {"w": torch.tensor(values)}, metrics={"loss": -step})
            assert handle is not None
            handle.wait()
            assert handle.status().non_finite == (2 if step == 2 else 0)
    assert steps_of(tmp_path / "run") == [2, 1]
    assert df._core.list_checkpoints(str(tmp_path / "run"))[0].non_finite == 2


def test_it_is_said_once_at_each_divergence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nan = float("nan")
    with df.Checkpointer(tmp_path / "run", statistics=True) as ckpt:
        for step, value in enumerate([1.0, nan, nan, 1.0, nan]):
            save(ckpt, step, value, 2.0)
        ckpt.wait()
    said = [each.getMessage() for each in caplog.records if "NaN or infinite" in each.getMessage()]
    assert [text.split(" holds")[0] for text in said] == ["step 1", "step 4"]


def test_who_restores_such_a_state_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    with df.Checkpointer(run, statistics=True) as ckpt:
        save(ckpt, 1, 1.0)
        save(ckpt, 2, float("inf"))
    state = {"w": torch.zeros(1), "n": torch.tensor([0])}
    with df.Checkpointer(run) as ckpt:
        caplog.clear()
        assert ckpt.restore(state, step=1) == 1
        assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert ckpt.restore(state) == 2
    assert "step 2 holds 1 values that are NaN or infinite" in caplog.text


def test_without_statistics_nothing_is_known(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "run") as ckpt:
        handle = save(ckpt, 1, float("nan"))
    assert handle.status().non_finite is None
    assert df._core.list_checkpoints(str(tmp_path / "run"))[0].non_finite is None
