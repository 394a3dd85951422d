"""A run's directory that is deleted, moved or replaced while a program has it open."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from testkit import attempt_of, save

import deepfreeze as df


def steps(run: Path) -> list[int]:
    """All that are committed, of any line; each is verified."""
    with df.Checkpointer(run, read_only=True) as ckpt:
        found = [info.step for info in ckpt.checkpoints() if not info.fault]
        for step in found:
            assert ckpt.verify(step) == []
        return sorted(found)


def run_id(run: Path) -> str:
    return str(json.loads((run / "deepfreeze.json").read_text())["run_id"])


def record(run: Path, name: str) -> Any:
    return json.loads((run / name).read_text())


def resumed(run: Path) -> int | None:
    """The step that a program that comes later goes on from."""
    state = {"n": 0}
    with df.Checkpointer(run) as ckpt:
        step = ckpt.restore(state)
    assert state["n"] == (step or 0)
    return step


def warnings_of(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capfd.readouterr().err.splitlines() if "warning" in line]


def delete(run: Path) -> None:
    shutil.rmtree(run)


def delete_parent(run: Path) -> None:
    shutil.rmtree(run.parent)


def delete_contents(run: Path) -> None:
    delete(run)
    run.mkdir()


def empty(run: Path) -> None:
    """Empties the directory."""
    for path in run.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def leave_half_deleted(run: Path) -> None:
    """As `rm -rf` that was interrupted."""
    for path in [*run.glob("*.json"), *run.glob("step-*/manifest.json")]:
        path.unlink()


@pytest.mark.parametrize(
    "harm", [delete, delete_parent, delete_contents, empty, leave_half_deleted]
)
def test_a_run_that_is_gone_is_made_again(
    tmp_path: Path, harm: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "runs" / "a"
    with df.Checkpointer(run, keep=df.keep(last=2)) as ckpt:
        save(ckpt, 1, {"n": 1})
        ckpt.wait()  # the collection behind it would see the harm, too, and warn
        before = run_id(run)
        harm(run)
        for step in (2, 3, 4):
            save(ckpt, step, {"n": step})
        ckpt.wait()
        assert ckpt.failed_saves == 0
    (warning,) = warnings_of(capfd)
    assert str(run) in warning
    assert "made again" in warning
    assert steps(run) == [3, 4]
    assert run_id(run) != before  # the old run may be continued in its new place
    assert "resumed_from" not in record(run, "generation-00000001.json")
    assert resumed(run) == 4


def test_before_the_first_save_too(tmp_path: Path) -> None:
    run = tmp_path / "a"
    with df.Checkpointer(run) as ckpt:
        delete(run)
        ckpt.prewarm({"n": 0})
        save(ckpt, 1, {"n": 1})
    assert resumed(run) == 1


def test_a_branch_that_is_made_again_keeps_its_parent(tmp_path: Path) -> None:
    run, parent = tmp_path / "a", (tmp_path / "parent", 7)
    with df.Checkpointer(run, parent=parent) as ckpt:
        before = record(run, "deepfreeze.json")["parent"]
        delete(run)
        save(ckpt, 1, {"n": 1})
    assert record(run, "deepfreeze.json")["parent"] == before is not None


def test_a_run_that_was_moved_away_is_never_mixed_with_the_new_one(tmp_path: Path) -> None:
    run, moved = tmp_path / "a", tmp_path / "moved"
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 1, {"n": 1})
        run.rename(moved)
        save(ckpt, 2, {"n": 2})
    assert (steps(moved), steps(run)) == ([1], [2])
    shutil.copytree(attempt_of(moved, 1), run / attempt_of(moved, 1).name)
    assert steps(run) == [2]
    assert resumed(run) == 2


@pytest.mark.parametrize("lost", ["deepfreeze.json", "generation-00000001.json"])
def test_one_record_that_is_lost_ends_nothing(
    tmp_path: Path, lost: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "a"
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 1, {"n": 1})
        before = run_id(run)
        (run / lost).unlink()
        for step in (2, 3):
            save(ckpt, step, {"n": step})
        assert ckpt.steps() == [1, 2, 3]
    assert len(warnings_of(capfd)) == 1
    assert run_id(run) == before
    assert max(run.glob("generation-*")).name == "generation-00000002.json"
    assert resumed(run) == 3


def test_a_copy_in_its_place_is_gone_on_with(tmp_path: Path) -> None:
    run, kept = tmp_path / "a", tmp_path / "kept"
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 1, {"n": 1})
        shutil.copytree(run, kept)
        save(ckpt, 2, {"n": 2})
        delete(run)
        kept.rename(run)  # it knows nothing of step 2
        assert ckpt.restore({"n": 0}) == 1
        save(ckpt, 3, {"n": 3})
        assert ckpt.steps() == [1, 3]
        shutil.copytree(run, kept)
        delete(run)
        kept.rename(run)
        save(ckpt, 4, {"n": 4})
        assert ckpt.steps() == [1, 3, 4]


def test_another_run_in_its_place_is_left_alone_until_it_is_restored(tmp_path: Path) -> None:
    run, other = tmp_path / "a", tmp_path / "other"
    with df.Checkpointer(other) as ckpt:
        save(ckpt, 5, {"n": 5})
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 1, {"n": 1})
        delete(run)
        other.rename(run)
        files = sorted(run.rglob("*"))
        for step in (2, 3):
            handle = ckpt.save(step, {"n": step})
            assert handle is not None
            with pytest.raises(df.FencedError, match="another run"):
                handle.wait()
        assert sorted(run.rglob("*")) == files
        state = {"n": 0}
        assert ckpt.restore(state) == state["n"] == 5
        save(ckpt, 6, {"n": 6})
        assert ckpt.steps() == [5, 6]


def test_a_new_run_within_the_same_directory_is_another_one(tmp_path: Path) -> None:
    run = tmp_path / "a"
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 1, {"n": 1})
        empty(run)
        with df.Checkpointer(run) as other:  # its claim has the same number
            save(other, 9, {"n": 9})
        handle = ckpt.save(2, {"n": 2})
        assert handle is not None
        with pytest.raises(df.FencedError, match="another run"):
            handle.wait()
    assert steps(run) == [9]


@pytest.mark.parametrize("lost", ["deepfreeze.json", "generation-00000001.json"])
def test_who_has_lost_the_run_does_not_get_it_back_by_a_lost_record(
    tmp_path: Path, lost: str
) -> None:
    run = tmp_path / "a"
    with df.Checkpointer(run) as ckpt, df.Checkpointer(run) as successor:
        save(ckpt, 1, {"n": 1})
        successor.restore({"n": 0})
        save(successor, 2, {"n": 2})
        (run / lost).unlink()
        handle = ckpt.save(2, {"n": 0})
        assert handle is not None
        with pytest.raises(df.FencedError):
            handle.wait()
        save(successor, 3, {"n": 3})
    assert resumed(run) == 3


def test_a_restore_from_a_run_that_is_gone_says_so(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "a") as ckpt:
        save(ckpt, 1, {"n": 1})
        delete(tmp_path / "a")
        with pytest.raises(df.CheckpointError, match="No such file or directory") as caught:
            ckpt.restore({"n": 0})
        assert caught.value.code == "not_found"


def test_a_file_in_its_place_fails_saves_until_it_is_gone(tmp_path: Path) -> None:
    run = tmp_path / "a"
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 1, {"n": 1})
        delete(run)
        run.touch()
        handle = ckpt.save(2, {"n": 2})
        assert handle is not None
        with pytest.raises(df.CheckpointError, match="Not a directory"):
            handle.wait()
        run.unlink()
        save(ckpt, 3, {"n": 3})
    assert resumed(run) == 3
