"""Training on a run that has checkpoints, with and without a restore before the first save."""

from pathlib import Path

import pytest
from testkit import save

import deepfreeze as df

OLD = range(1, 6)


def train(ckpt: df.Checkpointer, first: int, last: int) -> None:
    for step in range(first, last + 1):
        save(ckpt, step, {"n": step})
    ckpt.wait()


@pytest.fixture(autouse=True)
def trained(run: Path) -> None:
    """Trains as a program that has ended; that it ran in this process must make no difference."""
    with df.Checkpointer(run) as ckpt:
        train(ckpt, OLD[0], OLD[-1])


def kept(run: Path) -> list[tuple[int, int]]:
    """Generation and step of all."""
    with df.Checkpointer(run, read_only=True) as ckpt:
        return sorted((info.generation, info.step) for info in ckpt.checkpoints())


def of_old() -> list[tuple[int, int]]:
    return [(1, step) for step in OLD]


@pytest.mark.parametrize("first", [1, 4, 100])
@pytest.mark.parametrize("prewarms", [False, True])
def test_without_a_restore_the_old_line_stays(
    run: Path, first: int, prewarms: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    with df.Checkpointer(run, keep=df.keep(last=2, every=1000)) as ckpt:
        if prewarms:
            ckpt.prewarm({"n": 0})
        train(ckpt, first, first + 9)
        assert ckpt.steps() == [first + 8, first + 9]
    assert kept(run) == [*of_old(), (2, first + 8), (2, first + 9)]
    (warning,) = capfd.readouterr().err.splitlines()
    for part in (str(run), "5 checkpoints", "restore()", "keep", "deepfreeze gc"):
        assert part in warning


def test_it_stays_whoever_goes_on_with_the_new_line(run: Path) -> None:
    with df.Checkpointer(run, keep=df.keep(last=1)) as ckpt:
        train(ckpt, 1, 3)
    with df.Checkpointer(run, keep=df.keep(last=1)) as ckpt:
        assert ckpt.restore({"n": 0}) == 3
        train(ckpt, 4, 6)
    assert kept(run) == [*of_old(), (3, 6)]
    with df.Checkpointer(run, keep=df.keep(last=1)) as ckpt:  # and once more without
        train(ckpt, 1, 2)
    assert kept(run) == [*of_old(), (3, 6), (4, 2)]


def test_restoring_it_makes_it_the_line_again(run: Path) -> None:
    with df.Checkpointer(run, keep=df.keep(last=2)) as ckpt:
        train(ckpt, 1, 3)
    with df.Checkpointer(run, keep=df.keep(last=2)) as ckpt:
        assert ckpt.restore({"n": 0}, step=5) == 5
        train(ckpt, 6, 8)
    assert kept(run) == [(3, 7), (3, 8)]


@pytest.mark.parametrize("step", [None, 3])
def test_after_a_restore_keep_is_for_the_whole_line(
    run: Path, step: int | None, capfd: pytest.CaptureFixture[str]
) -> None:
    with df.Checkpointer(run, keep=df.keep(last=2)) as ckpt:
        ckpt.restore({"n": 0}, step=step)
        train(ckpt, 6, 8)
    assert kept(run) == [(2, 7), (2, 8)]
    assert capfd.readouterr().err == ""


def test_a_restore_by_another_checkpointer_counts(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with df.Checkpointer(run) as first:
        first.restore({"n": 0})
    with df.Checkpointer(run, keep=df.keep(last=2)) as ckpt:
        ckpt.prewarm({"n": 0})
        train(ckpt, 6, 8)
    assert kept(run) == [(2, 7), (2, 8)]
    assert capfd.readouterr().err == ""


def test_a_restore_that_was_followed_by_a_smaller_step_does_not(run: Path) -> None:
    with df.Checkpointer(run) as first:
        first.restore({"n": 0})
    with df.Checkpointer(run, keep=df.keep(last=2)) as ckpt:
        ckpt.prewarm({"n": 0})
        train(ckpt, 1, 3)
    assert [pair for pair in kept(run) if pair[0] == 1] == of_old()


def test_a_restore_counts_until_the_next_save(run: Path) -> None:
    with df.Checkpointer(run) as first:
        first.restore({"n": 0})
        train(first, 6, 7)
    with df.Checkpointer(run, keep=df.keep(last=1)) as ckpt:
        train(ckpt, 8, 9)
    assert kept(run) == [*of_old(), (2, 6), (2, 7), (3, 9)]


def test_a_restore_to_look_at_does_not_count(run: Path) -> None:
    with df.Checkpointer(run, read_only=True) as first:
        first.restore({"n": 0})
    with df.Checkpointer(run, keep=df.keep(last=1)) as ckpt:
        train(ckpt, 6, 8)
    assert kept(run) == [*of_old(), (2, 8)]


def test_a_new_run_and_a_branch_have_nothing_to_warn_of(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with df.Checkpointer(tmp_path / "new", keep=df.keep(last=1)) as ckpt:
        assert ckpt.restore({"n": 0}) is None
        train(ckpt, 1, 2)
    branch = tmp_path / "branch"
    with df.Checkpointer(branch, parent=(run, 3), keep=df.keep(last=1)) as ckpt:
        assert ckpt.restore({"n": 0}) == 3
        train(ckpt, 4, 5)
    assert kept(branch) == [(1, 5)]
    assert kept(run) == of_old()
    assert capfd.readouterr().err == ""
