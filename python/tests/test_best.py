"""best(), and "best" and "latest" wherever a step is taken."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from testkit import data_file, flip, save

import deepfreeze as df
from deepfreeze.restoring.chosen import split_address

KEEP = df.keep(last=5, best=("acc", "max"))


def saved(ckpt: df.Checkpointer, step: int, **metrics: float) -> None:
    save(ckpt, step, {"w": np.full(8, step)}, metrics=metrics)


def filled(ckpt: df.Checkpointer, step: Any) -> tuple[int | None, int]:
    """The step that a restore returns, and the one whose values it has put in place."""
    state = {"w": np.zeros(8, int)}
    return ckpt.restore(state, step=step), int(state["w"][0])


@pytest.fixture
def run(tmp_path: Path) -> Iterator[df.Checkpointer]:
    """Loss is least at 2, accuracy greatest at 3, and 4 is the newest."""
    with df.Checkpointer(tmp_path / "run", keep=KEEP) as ckpt:
        for step, loss, acc in ((1, 3.0, 0.1), (2, 1.0, 0.2), (3, 2.0, 0.9), (4, 2.5, 0.8)):
            saved(ckpt, step, loss=loss, acc=acc)
        yield ckpt


def test_the_best_is_by_the_rule_of_keep_or_by_the_metric_that_is_named(
    run: df.Checkpointer,
) -> None:
    assert run.best() == 3
    assert run.best("acc") == 3
    assert run.best("acc", "min") == 1
    assert run.best(mode="min") == 1
    assert run.best("loss") == 2
    assert run.best("loss", "max") == 1


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("best", 3),
        ("best:acc", 3),
        ("best:acc:min", 1),
        ("best:loss", 2),
        ("best:loss:max", 1),
        ("latest", 4),
        (None, 4),
        (2, 2),
    ],
)
def test_a_step_can_be_named_wherever_one_is_taken(
    run: df.Checkpointer, step: int | str | None, expected: int
) -> None:
    assert filled(run, step) == (expected, expected)
    assert run.load(step)["w"].tolist() == 8 * [expected]
    assert run.verify(step) == []


def test_a_reader_without_a_rule_has_that_of_the_runs_last_writer(run: df.Checkpointer) -> None:
    reader = df.Checkpointer(run.path)
    assert reader.best() == 3
    assert filled(reader, "best") == (3, 3)


def test_the_own_rule_comes_before_the_recorded_one(run: df.Checkpointer) -> None:
    assert df.Checkpointer(run.path, keep=df.keep(best=("loss", "min"))).best() == 2


def test_without_a_rule_the_metrics_are_named(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path) as ckpt:
        saved(ckpt, 1, loss=1.0, acc=0.5)
        with pytest.raises(df.CheckpointError, match="there are acc, loss") as raised:
            ckpt.best()
        assert raised.value.code == "invalid_argument"
        with pytest.raises(df.CheckpointError, match="best:METRIC:min"):
            filled(ckpt, "best")
        with pytest.raises(df.CheckpointError, match="best:acc:min or best:acc:max"):
            ckpt.load("best:acc")
        with pytest.raises(df.CheckpointError, match="no checkpoint has the metric los; there"):
            ckpt.verify("best:los")
        assert ckpt.best("loss") == 1


@pytest.mark.parametrize("odd", ["bestt", "best:", "best::min", "newest", "4", ""])
def test_another_text_is_refused(run: df.Checkpointer, odd: str) -> None:
    for call in (lambda: filled(run, odd), lambda: run.load(odd), lambda: run.verify(odd)):
        with pytest.raises(df.CheckpointError, match=r"best:METRIC:min\|max"):
            call()


def test_of_nothing_there_is_no_best(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path, keep=KEEP) as ckpt:
        assert ckpt.best() is None
        assert filled(ckpt, "best") == (None, 0)
        with pytest.raises(df.CheckpointError, match="no checkpoint to load"):
            ckpt.load("best")


def test_a_damaged_best_is_not_replaced_by_another(run: df.Checkpointer) -> None:
    flip(data_file(run.path, 3), -5)
    with pytest.raises(df.CorruptError):
        filled(run, "best")
    with pytest.raises(df.CorruptError):
        run.load("best")
    assert filled(run, "best:loss") == (2, 2)


def test_what_is_abandoned_not_finite_or_nan_is_never_the_best(tmp_path: Path) -> None:
    keep = df.keep(last=9, best=("loss", "min"))
    with df.Checkpointer(tmp_path, keep=keep, statistics=True) as ckpt:
        saved(ckpt, 1, loss=3.0)
        saved(ckpt, 2, loss=0.5)
        assert filled(ckpt, 1) == (1, 1)
        saved(ckpt, 3, loss=2.0)
        save(ckpt, 4, {"w": np.full(8, math.nan)}, metrics={"loss": 0.0})
        saved(ckpt, 5, loss=math.nan)
        saved(ckpt, 6, loss=2.0)
        saved(ckpt, 7)
        assert ckpt.best() == 6  # of equal ones the newer


def test_the_best_and_not_the_newest_of_its_step_is_restored(tmp_path: Path) -> None:
    """Step 2 is there twice: on the line, and newer on a line that was given up."""
    keep = df.keep(last=9, best=("loss", "min"))
    with df.Checkpointer(tmp_path, keep=keep) as ckpt:
        save(ckpt, 2, {"w": np.full(8, 20)}, metrics={"loss": 1.0})
        first = ckpt.checkpoints()[0]
        saved(ckpt, 1, loss=5.0)  # the step went back: a new line
        save(ckpt, 2, {"w": np.full(8, 21)}, metrics={"loss": 0.0})
        ckpt._engine.continue_from(first)
        save(ckpt, 3, {"w": np.full(8, 30)}, metrics={"loss": 2.0})
        assert filled(ckpt, "best") == (2, 20)


def test_a_new_branch_begins_with_its_parents_step(run: df.Checkpointer, tmp_path: Path) -> None:
    branch = df.Checkpointer(tmp_path / "branch", parent=(run.path, 2))
    assert filled(branch, "best:loss") == (2, 2)


def test_a_best_that_is_replaced_meanwhile_is_looked_for_anew(
    run: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = df.Checkpointer(run.path)
    listed = df.Checkpointer.checkpoints
    lists: list[int] = []

    def and_then_deleted(self: df.Checkpointer) -> Any:
        infos = listed(self)
        if not lists:
            df._core.delete_checkpoint(next(info for info in infos if info.step == 3))
        lists.append(len(infos))
        return infos

    monkeypatch.setattr(df.Checkpointer, "checkpoints", and_then_deleted)
    assert reader.load("best")["w"].tolist() == 8 * [4]
    assert lists == [4, 3]


def test_addresses_are_read_as_on_the_command_line(run: df.Checkpointer, tmp_path: Path) -> None:
    text = str(run.path)
    assert split_address(text) is None
    assert split_address(f"{text}@7") == (run.path, 7)
    assert split_address(f"{text}@latest") == (run.path, "latest")
    assert split_address(f"{text}@best:recall@10:max") == (run.path, "best:recall@10:max")
    assert split_address(str(tmp_path / "gone@7")) is None
    (tmp_path / "odd@7").mkdir()
    assert split_address(str(tmp_path / "odd@7")) is None
    assert split_address(str(tmp_path / "odd@7@8")) == (tmp_path / "odd@7", 8)
    with pytest.raises(df.CheckpointError, match="'newest' is no number"):
        split_address(f"{text}@newest")
