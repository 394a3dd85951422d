"""Tags of checkpoints that exist: df.tag()."""

from pathlib import Path

import numpy as np
import pytest

import deepfreeze as df


def save_some(run: Path) -> None:
    with df.Checkpointer(run) as ckpt:
        for step in (1, 2, 3):
            ckpt.save(step, {"w": np.full(4, step)}, tags={"host": "a"}).wait("durable")


def steps(run: Path) -> list[int]:
    return sorted(int(each.name.split("-")[1]) for each in run.glob("step-*"))


def test_a_tagged_checkpoint_stays_until_its_tags_are_removed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    save_some(run)
    assert df.tag(run, 1, {"release": "1.0"}) == {"host": "a", "release": "1.0"}
    assert df.tag(run, 1, {"host": "b", "x": ""}) == {"host": "b", "release": "1.0", "x": ""}
    with df.Checkpointer(run, keep=df.keep(last=1)) as ckpt:
        ckpt.restore({"w": np.zeros(4, int)})
        ckpt.save(4, {"w": np.full(4, 4)}).wait("durable")
    assert steps(run) == [1, 4]
    assert df.tag(run, 1, {}, remove=["host", "release", "x"]) == {"host": "a"}
    with df.Checkpointer(run, keep=df.keep(last=1)) as ckpt:
        ckpt.restore({"w": np.zeros(4, int)})
        ckpt.save(5, {"w": np.full(4, 5)}).wait("durable")
    assert steps(run) == [5]


def test_what_can_not_be_tagged_is_told(tmp_path: Path) -> None:
    run = tmp_path / "run"
    save_some(run)
    with pytest.raises(df.CheckpointError, match="no checkpoint of step 9"):
        df.tag(run, 9, {"a": "b"})
    with pytest.raises(df.CheckpointError, match="no tag 'host'"):
        df.tag(run, 1, {}, remove=["host"])
    with pytest.raises(df.CheckpointError, match="can't be a tag's name"):
        df.tag(run, 1, {"a b": "c"})
