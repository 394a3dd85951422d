"""Errors at open and at close, so that no job ends without one checkpoint."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from testkit import save
from users import ALICE, BOB, as_user, needs_root, shared_directory

import deepfreeze as df


def files(place: Path) -> dict[Path, float]:
    return {path: path.stat().st_mtime_ns for path in [place, *place.rglob("*")]}


def stored(run: Path) -> None:
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 1, {"n": 1})


@pytest.mark.parametrize("link", [None, ""])
def test_no_link_is_refused_by_name(tmp_path: Path, link: str) -> None:
    with pytest.raises(ValueError, match="link"):
        df.Checkpointer(tmp_path / "run", near="node", link=link)
    assert not (tmp_path / "run").exists()


@needs_root
def test_who_may_not_write_is_told_at_open_and_may_restore() -> None:
    with shared_directory() as shared:
        run = shared / "a"
        as_user(ALICE, 0o022, lambda: stored(run))
        before = files(run)

        def look() -> None:
            for path in (run, run / "below" / "it"):
                with pytest.raises(df.CheckpointError, match=r"Permission denied.*read_only"):
                    df.Checkpointer(path)
            with df.Checkpointer(run, read_only=True) as ckpt:
                state = {"n": 0}
                assert ckpt.restore(state) == state["n"] == 1

        as_user(BOB, 0o002, look)
        assert files(run) == before


def test_a_file_in_the_way_is_told_at_open(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(df.CheckpointError, match=r"Not a directory.*read_only"):
            df.Checkpointer(path)


def test_read_only_changes_nothing(run: Path) -> None:
    stored(run)
    before = files(run)
    with df.Checkpointer(run, read_only=True, every=df.every(steps=1)) as ckpt:
        state = {"n": 0}
        assert ckpt.restore(state) == 1
        assert (ckpt.latest(), ckpt.steps(), ckpt.load(), ckpt.verify()) == (1, [1], {"n": 1}, [])
        for call in (ckpt.save, ckpt.step):
            with pytest.raises(df.CheckpointError, match="read-only"):
                call(2, state)
        with pytest.raises(df.CheckpointError, match="read-only"):
            ckpt.prewarm(state)
        assert ckpt.failed_saves == 0
    assert files(run) == before


def test_read_only_does_not_make_a_run(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(df.CheckpointError) as caught:
            df.Checkpointer(path, read_only=True)
        assert caught.value.code == "not_found"
        assert str(path) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def put_a_file_there(run: Path) -> None:
    run.rename(run.with_name("moved"))
    run.touch()


def test_a_program_that_never_saved_is_told_when_it_closes(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ckpt = df.Checkpointer(run)
    put_a_file_there(run)
    for step in (1, 2):
        ckpt.save(step, {"n": step})
        ckpt.wait()
    with pytest.raises(df.CheckpointError, match=r"no save has succeeded, of 2.*Not a directory"):
        ckpt.close()
    ckpt.close()  # told once
    texts = [entry.getMessage() for entry in caplog.records if entry.levelno == logging.ERROR]
    assert [f"{n} of {n} have failed" in text for n, text in enumerate(texts, 1)] == [True, True]


def test_who_waited_was_told(run: Path) -> None:
    with df.Checkpointer(run) as ckpt:
        put_a_file_there(run)
        handle = ckpt.save(1, {"n": 1})
        assert handle is not None
        with pytest.raises(df.CheckpointError):
            handle.wait()
        ckpt.save(2, {"n": 2})


def test_who_has_saved_is_told_by_handles_and_log_alone(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 1, {"n": 1})
        put_a_file_there(run)
        ckpt.save(2, {"n": 2})
    (entry,) = [entry for entry in caplog.records if entry.levelno == logging.ERROR]
    assert "None has succeeded" not in entry.getMessage()


def test_the_error_of_the_training_is_not_hidden(run: Path) -> None:
    def train() -> None:
        with df.Checkpointer(run) as ckpt:
            put_a_file_there(run)
            ckpt.save(1, {"n": 1})
            ckpt.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()


def test_strict_saves_tell_at_once(run: Path) -> None:
    with df.Checkpointer(run, strict_saves=True) as ckpt:
        put_a_file_there(run)
        ckpt.save(1, {"n": 1})
        ckpt.wait()
        with pytest.raises(df.CheckpointError, match="Not a directory"):
            ckpt.save(2, {"n": 2})


def test_a_program_that_does_not_close_is_told_at_its_end(run: Path) -> None:
    code = """
import os, sys, deepfreeze as df
ckpt = df.Checkpointer(sys.argv[1])
os.rename(sys.argv[1], sys.argv[1] + ".moved")
open(sys.argv[1], "w").close()
ckpt.save(1, {"n": 1})
"""
    done = subprocess.run(
        [sys.executable, "-c", code, os.fspath(run)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "no save has succeeded, of 1" in done.stderr
