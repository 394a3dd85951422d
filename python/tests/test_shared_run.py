"""One run of several users: files and directories have the modes that the umask leaves."""

import os
import stat
from pathlib import Path

import pytest
import torch
from testkit import attempt_of, save
from users import ALICE, BOB, GROUP, as_user, needs_root, shared_directory

import deepfreeze as df


def modes(place: Path) -> tuple[set[int], set[int]]:
    """The modes of all directories and of all files below `place`."""
    found = [place, *place.rglob("*")]
    return (
        {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()},
        {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()},
    )


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_every_mode_is_what_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    top = tmp_path / "top"  # and the directory above the run, which is made too
    before = os.umask(umask)
    try:
        with df.Checkpointer(
            top / "runs" / "a", prometheus_textfile=tmp_path / "a.prom", statistics=True
        ) as ckpt:
            save(ckpt, 1, {"x": torch.ones(3)})
        ranks = df.DirectoryRanks(top / "ranks", rank=0, world_size=1)
        assert ranks.gather(b"own") == [b"own"]
    finally:
        os.umask(before)
    assert modes(top) == ({0o777 & ~umask}, {0o666 & ~umask})
    assert stat.S_IMODE((tmp_path / "a.prom").stat().st_mode) == 0o666 & ~umask


def steps_after(run: Path, step: int, keep: int = 9, restored: int | None = None) -> None:
    """Goes on with the run by one step, as its next user does."""
    with df.Checkpointer(run, keep=df.keep(last=keep)) as ckpt:
        state = {"n": 0}
        assert ckpt.restore(state) == restored
        assert state["n"] == (restored or 0)
        save(ckpt, step, {"n": step})


@needs_root
@pytest.mark.parametrize("shared_by", ["setgid", "primary group"])
def test_two_users_of_a_group_go_on_with_one_run(shared_by: str) -> None:
    with shared_directory(0o2775 if shared_by == "setgid" else 0o775) as shared:
        group = None if shared_by == "setgid" else GROUP
        run = shared / "runs" / "a"
        as_user(ALICE, 0o002, lambda: steps_after(run, 1), group)
        as_user(ALICE, 0o002, lambda: steps_after(run, 2, restored=1), group)
        (run / f"step-{9:012d}-{9:016x}").mkdir()  # left by a process of Alice that died
        (run / f"step-{9:012d}-{9:016x}" / "rank-00000-of-00001-0-of-1.part").touch()
        for path in run.rglob("*9-*"):
            os.chown(path, ALICE, GROUP)
            path.chmod(0o2775 if path.is_dir() else 0o664)
        # Bob claims, aborts and deletes the files that Alice's process left, and then her
        # checkpoints.
        as_user(BOB, 0o002, lambda: steps_after(run, 3, keep=1, restored=2), group)
        assert [path.name[:17] for path in run.glob("step-*")] == [f"step-{3:012d}"]
        assert attempt_of(run, 3).stat().st_uid == BOB
        as_user(ALICE, 0o002, lambda: steps_after(run, 4, keep=1, restored=3), group)
        assert [path.name[:17] for path in run.glob("step-*")] == [f"step-{4:012d}"]
