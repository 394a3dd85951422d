"""A restore that fails half-way, and the calls after it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from failing import Stateful, fail
from testkit import data_file, data_start, flip, save

import deepfreeze as df
from deepfreeze.restoring import restore_plan


def half_restored(ckpt: df.Checkpointer) -> dict[str, Any]:
    state = {"a": torch.ones(4), "b": torch.ones(4), "own": Stateful()}
    save(ckpt, 1, state)
    with pytest.raises(df.CheckpointError, match="no"):
        ckpt.restore({**state, "own": Stateful(load=fail(ValueError("no")))})
    return state


def test_a_restore_of_a_part_does_not_end_the_refusal(ckpt: df.Checkpointer) -> None:
    state = half_restored(ckpt)
    ckpt.restore(state, keys=["a"])
    with pytest.raises(df.CheckpointError, match="half restored"):
        ckpt.save(2, state)
    ckpt.restore(state)
    save(ckpt, 2, state)


def test_a_restore_of_all_that_was_touched_ends_the_refusal(ckpt: df.Checkpointer) -> None:
    state = half_restored(ckpt)
    ckpt.restore(state, keys=["a", "b", "own"])
    save(ckpt, 2, state)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), SystemExit(3)])
def test_an_interrupted_restore_makes_save_refuse(
    ckpt: df.Checkpointer, error: BaseException
) -> None:
    state = {"a": torch.ones(4), "own": Stateful()}
    save(ckpt, 1, state)
    with pytest.raises((type(error), df.CheckpointError)):
        ckpt.restore({**state, "own": Stateful(load=fail(error))})
    with pytest.raises(df.CheckpointError, match="half restored"):
        ckpt.save(2, state)


def test_an_interrupt_before_anything_is_modified_changes_nothing(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"a": torch.ones(4)}
    save(ckpt, 1, state)
    monkeypatch.setattr(restore_plan, "match_state", lambda *_: fail(KeyboardInterrupt())())
    with pytest.raises(KeyboardInterrupt):
        ckpt.restore(state)
    save(ckpt, 2, state)


class Own:
    def __init__(self, value: Any) -> None:
        self.value = value


def test_a_fault_of_from_tree_is_no_damage_and_modifies_nothing(
    ckpt: df.Checkpointer, caplog: pytest.LogCaptureFixture
) -> None:
    broken = False

    def from_tree(value: Any) -> Own:
        if broken:
            raise ValueError("from_tree is at fault")
        return Own(value)

    df.register_type(Own, "test.review.own", lambda own: own.value, from_tree)
    for step in (1, 2):
        save(ckpt, step, {"x": torch.full((4,), float(step)), "own": Own(step), "n": [step]})
    broken = True
    live = {"x": torch.zeros(4), "own": Own(0), "n": [0]}
    with pytest.raises(df.CheckpointError, match="from_tree is at fault") as caught:
        ckpt.restore(live)
    assert (caught.value.code, caught.value.state_modified) == ("unsupported", False)
    assert not caplog.records
    assert (live["x"] == 0).all()
    assert live["n"] == [0]
    save(ckpt, 3, {"x": torch.zeros(1)})


class Other(Own):
    """Registered under a name of its own."""


def test_of_two_registered_types_neither_becomes_the_other(ckpt: df.Checkpointer) -> None:
    """Unless all in it is plain, which strict=False allows of any."""
    for kind, name in ((Own, "test.review.own"), (Other, "test.review.other")):
        df.register_type(kind, name, lambda own: own.value, kind)
    save(ckpt, 1, {"v": Own(torch.ones(1))})
    state = {"v": Other(torch.zeros(1))}
    with pytest.raises(df.MismatchError, match=r"v: stored .*, live a Other"):
        ckpt.restore(state)
    ckpt.restore(state, strict=False)
    assert ckpt.last_restore is not None
    assert [*ckpt.last_restore.mismatched] == ["v"]
    assert type(state["v"]) is Other


@pytest.mark.parametrize(
    "error", [ValueError("no"), df.CorruptError("its own file"), df.IncompleteError("part")]
)
def test_once_applying_has_begun_no_other_checkpoint_is_tried(
    ckpt: df.Checkpointer, error: Exception
) -> None:
    for step in (1, 2):
        save(ckpt, step, {"x": torch.full((4,), float(step)), "own": Stateful()})
    live = {"x": torch.zeros(4), "own": Stateful(load=fail(error))}
    with pytest.raises(df.CheckpointError, match=str(error)) as caught:
        ckpt.restore(live)
    assert (caught.value.code, caught.value.state_modified) == ("unsupported", True)
    assert (live["x"] == 2).all()


def test_damaged_data_still_falls_back(run: Path) -> None:
    with df.Checkpointer(run) as ckpt:
        for step in (1, 2):
            save(ckpt, step, {"x": torch.full((1000,), float(step)), "n": {"k": [step]}})
        path = data_file(run, 2)
        flip(path, data_start(path) + 100)
        live: Any = {"x": torch.zeros(1000), "n": {"k": [0]}}
        assert ckpt.restore(live) == 1
    assert (live["x"] == 1).all()
    assert live["n"] == {"k": [1]}
