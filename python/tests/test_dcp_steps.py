"""Which step of a run StorageReader takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from dcp_kit import load, save
from torch.distributed.checkpoint.api import CheckpointException

import deepfreeze as df


def loaded(run: Path, step: Any) -> tuple[int | None, float]:
    state = {"w": torch.zeros(4)}
    return load(state, run, step=step), float(state["w"][0])


def test_a_step_may_be_the_latest_or_a_number(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save({"w": torch.full((4,), step)}, tmp_path, keep_last=None)
    assert loaded(tmp_path, "latest") == loaded(tmp_path, None) == (3, 3.0)
    assert loaded(tmp_path, 2) == (2, 2.0)


def test_the_best_needs_metrics_and_says_so(tmp_path: Path) -> None:
    save({"w": torch.ones(4)}, tmp_path)
    with pytest.raises(CheckpointException, match="no checkpoint has the metric loss; no check"):
        loaded(tmp_path, "best:loss")
    with pytest.raises(df.CheckpointError, match="is no number"):
        loaded(tmp_path, "newest")
