"""GradScaler between runs with and without mixed precision."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import deepfreeze as df


def test_enabled_scaler_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path) as ckpt:
        stored = {"x": torch.ones(2), "s": torch.amp.GradScaler("cpu", enabled=False)}
        ckpt.save(1, stored).wait("durable")
        live = {"x": torch.zeros(2), "s": torch.amp.GradScaler("cpu")}
        with pytest.raises(df.MismatchError, match=r"s: .*GradScaler that is enabled"):
            ckpt.restore(live)
        assert live["x"].tolist() == [0, 0]
        ckpt.save(2, live).wait("durable")  # nothing is half restored
        assert ckpt.latest() == 2


def test_scaler_comes_back_with_its_scale(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"s": torch.amp.GradScaler("cpu", init_scale=64.0)}).wait("durable")
        live = torch.amp.GradScaler("cpu")
        ckpt.restore({"s": live})
        assert live.get_scale() == 64
