"""A reader, and a writer whose retention deletes a checkpoint that the reader has just listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepfreeze as df
from deepfreeze import _core


def state(step: int) -> dict[str, Any]:
    return {"w": np.full(1000, step, np.float32)}


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[df.Checkpointer]:
    """It keeps its newest step, and step 100."""
    with df.Checkpointer(tmp_path / "run", keep=df.keep(last=1, every=100)) as made:
        for step in (100, 180):
            commit(made, step)
        yield made


def commit(ckpt: df.Checkpointer, step: int) -> None:
    handle = ckpt.save(step, state(step))
    assert handle is not None
    handle.wait("durable")
    ckpt.wait()


@pytest.fixture
def before_opening(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has an action done, once, between a list and the opening of a listed checkpoint."""
    due: list[Callable[[], object]] = []

    def wrap(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def opening(*arguments: Any) -> Any:
            while due:
                due.pop()()
            return real(*arguments)

        monkeypatch.setattr(owner, name, opening)

    wrap(_core, "open_checkpoint")
    wrap(_core.Engine, "open_checkpoint")
    wrap(_core, "verify_checkpoint")
    return due.append


def test_restore_goes_on_to_the_newer_one(
    trainer: df.Checkpointer, before_opening: Callable[[Callable[[], object]], None]
) -> None:
    live = state(0)
    with df.Checkpointer(trainer.path) as reader:
        before_opening(lambda: commit(trainer, 181))
        assert reader.restore(live) == 181
        assert reader.last_restore is not None
        assert reader.last_restore.fell_back_from == []
    assert live["w"][0] == 181


def test_load_and_verify_go_on_to_the_newer_one(
    trainer: df.Checkpointer, before_opening: Callable[[Callable[[], object]], None]
) -> None:
    with df.Checkpointer(trainer.path) as reader:
        before_opening(lambda: commit(trainer, 181))
        assert reader.load()["w"][0] == 181
        before_opening(lambda: commit(trainer, 182))
        assert reader.verify() == []


def test_a_step_that_was_asked_for_is_gone(
    trainer: df.Checkpointer, before_opening: Callable[[Callable[[], object]], None]
) -> None:
    with df.Checkpointer(trainer.path) as reader:
        for read in (reader.load, reader.verify, lambda step: reader.restore(state(0), step=step)):
            newest = trainer.latest()
            assert newest is not None
            before_opening(lambda step=newest + 1: commit(trainer, step))  # type: ignore[misc]
            with pytest.raises(df.CheckpointError, match=r"manifest\.json") as raised:
                read(newest)
            assert raised.value.code == "gone"


def test_where_nothing_is_left_that_is_said(
    trainer: df.Checkpointer, before_opening: Callable[[Callable[[], object]], None]
) -> None:
    def delete_all() -> None:
        for info in _core.list_checkpoints(str(trainer.path)):
            _core.delete_checkpoint(info)

    with df.Checkpointer(trainer.path) as reader:
        before_opening(delete_all)
        assert reader.restore(state(0)) is None
        with pytest.raises(df.CheckpointError, match="no checkpoint to load"):
            reader.load()


def test_what_stays_listed_and_gone_is_passed_over(
    trainer: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _core.open_checkpoint
    opened: list[int] = []

    def opening(info: Any) -> Any:
        opened.append(info.step)
        if info.step == 180:
            raise df.CheckpointError("gone", code="gone")
        return real(info)

    monkeypatch.setattr(_core, "open_checkpoint", opening)
    with df.Checkpointer(trainer.path) as reader:
        assert reader.load()["w"][0] == 100
    assert opened == [180, 180, 100]


def test_restoring_in_a_second_process_while_a_save_is_in_flight_claims_nothing(
    trainer: df.Checkpointer,
) -> None:
    live = state(0)
    with df.Checkpointer(trainer.path) as reader:
        for step in range(181, 191):
            handle = trainer.save(step, state(step))
            assert handle is not None
            assert reader.restore(live) in (step - 1, step)
            handle.wait("durable")
    assert trainer.latest() == 190
