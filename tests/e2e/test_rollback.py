"""Going back to an older step makes the newer ones an abandoned line, not the newest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import deepfreeze as df

ABANDONED, BACK = 150, 100


def state_at(step: int) -> dict[str, Any]:
    return {"w": torch.full((50,), float(step)), "step": step}


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To step 150, all kept."""
    run = tmp_path_factory.mktemp("rollback") / "run"
    with df.Checkpointer(run) as ckpt:
        for step in range(1, ABANDONED + 1):
            ckpt.save(step, state_at(step))
    return run


def on_disk(run: Path) -> set[int]:
    return {int(path.parent.name.split("-")[1]) for path in run.glob("step-*/manifest.json")}


def restored(run: Path) -> dict[str, Any]:
    state = state_at(0)
    with df.Checkpointer(run) as ckpt:
        step = ckpt.restore(state)
    assert state["step"] == step
    return state


def test_the_newest_after_a_rollback_is_the_new_line(long_run: Path) -> None:
    """One test in order: each part continues at the end of the one before it."""
    assert on_disk(long_run) == set(range(1, ABANDONED + 1))
    state = state_at(0)
    with df.Checkpointer(long_run, keep=df.keep(last=3)) as ckpt:
        assert ckpt.restore(state, step=BACK) == BACK
        assert torch.equal(state["w"], state_at(BACK)["w"])
        ckpt.save(BACK + 1, state_at(-1) | {"step": BACK + 1})
        ckpt.wait()
        assert ckpt.latest() == BACK + 1

        # 101 is newer than 150; of the current line only 99, 100 and 101 stay, and the
        # abandoned steps go once three newer ones are durable, not before.
        assert {BACK - 1, BACK, BACK + 1, ABANDONED} <= on_disk(long_run)
        for step in (BACK + 2, BACK + 3):
            ckpt.save(step, state_at(-1) | {"step": step})
        ckpt.wait()
        assert ckpt.latest() == BACK + 3
    assert on_disk(long_run) == {BACK + 1, BACK + 2, BACK + 3}

    again = restored(long_run)
    assert again["step"] == BACK + 3
    assert torch.equal(again["w"], state_at(-1)["w"])
