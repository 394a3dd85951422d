"""A save stores the bytes that a walk without a memo finds, after any change of the state.

Saves of an unchanged state keep entries, guards and the engine's table from the save before.
"""

from __future__ import annotations

import ctypes
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_recall import CHANGES, Counting, start, train
from torch import nn

import deepfreeze as df
from deepfreeze.errors import CheckpointError, EncodeError
from deepfreeze.saving import guards
from deepfreeze.saving.capture import walk
from deepfreeze.saving.guards import KeptMemo

SEEDS, STATES = 6, 5
SAVES = 14  # of each state
SAVES_ALIKE = 4  # at first
ALIKE = 0.6  # of the other saves, too, only train before


@pytest.fixture(autouse=True)
def all_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "LAZY_BYTES_MIN", 0)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each save has kept the guards of the one before."""
    answers: list[bool] = []
    again = KeptMemo.again

    def noted(*arguments: Any) -> Any:
        found = again(*arguments)
        answers.append(found is not None)
        return found

    monkeypatch.setattr(KeptMemo, "again", noted)
    return answers


def stored(run: Path, step: int) -> dict[str, bytes]:
    """The bytes of each entry of the newest attempt of a step."""
    (found,) = run.glob(f"step-{step:012}-*/*.safetensors")
    data = found.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    places = {key: each["data_offsets"] for key, each in header.items() if key != "__metadata__"}
    return {key: data[end + begin : end + last] for key, (begin, last) in places.items()}


def count_anew(state: dict[str, Any]) -> None:
    """Else two walks in a row are not meant to find the same."""
    for module in state.values():
        for inner in module.modules() if isinstance(module, nn.Module) else ():
            if isinstance(inner, Counting):
                inner.calls = 0


def as_found(state: dict[str, Any]) -> dict[str, bytes] | str:
    """The bytes of each entry by a walk without a memo, or its error."""
    count_anew(state)
    try:
        capture = walk(state)
        return {e.key: ctypes.string_at(e.address, e.bytes) for e in capture.entries}
    except EncodeError as error:
        return str(error)


def save(ckpt: df.Checkpointer, step: int, state: dict[str, Any]) -> dict[str, bytes] | str:
    """The stored bytes of each entry, or the error."""
    try:
        handle = ckpt.save(step, state)
    except EncodeError as error:
        return str(error)
    assert handle is not None
    handle.wait("durable")
    return stored(Path(ckpt.path), step)


def change_at_random(state: dict[str, Any], draw: random.Random) -> list[str]:
    names = []
    for change in draw.choices(CHANGES, k=draw.randrange(1, 3)):
        try:
            change(state)
        except (AttributeError, KeyError, TypeError, RuntimeError):  # after others it can't
            continue
        names.append(change.__name__)
    return names


def live(run: Path, draw: random.Random) -> None:
    """Some saves of one training, which changes more than its values now and then."""
    seed = draw.randrange(1 << 16)
    state, changes = start(seed), [f"start({seed})"]
    with df.Checkpointer(run, keep=df.keep(last=1)) as ckpt:
        ckpt.attach(state["optim"])
        for step in range(SAVES):
            if step < SAVES_ALIKE or draw.random() < ALIKE:
                with_errors_passed(lambda: train(state))
            else:
                changes += change_at_random(state, draw)
            expected = as_found(state)
            count_anew(state)
            assert save(ckpt, step, state) == expected, changes


@pytest.mark.parametrize("seed", range(SEEDS))
def test_saves_among_changes(tmp_path: Path, seed: int, kept: list[bool]) -> None:
    draw = random.Random(seed)
    for number in range(STATES):
        live(tmp_path / str(number), draw)
    assert any(kept), "no save had anything to keep"
    assert not all(kept), "no change was seen"


def with_errors_passed(work: Callable[[], None]) -> None:
    """A state that was changed may not train any more."""
    try:
        work()
    except (AttributeError, KeyError, TypeError, RuntimeError):
        return


def test_most_saves_of_a_training_keep_their_guards(tmp_path: Path, kept: list[bool]) -> None:
    state = start(1)
    state.pop("counting", None)
    with df.Checkpointer(tmp_path, keep=df.keep(last=1)) as ckpt:
        ckpt.attach(state["optim"])
        for step in range(12):
            train(state)
            assert save(ckpt, step, state) == as_found(state)
    assert kept[3:]
    assert all(kept[3:])


def test_a_save_that_fails_leaves_no_table_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its walk has noted the tensors' new addresses, and the engine's table has not."""
    net = nn.Linear(8, 8)
    optim = torch.optim.Adam(net.parameters())
    state: dict[str, Any] = {"net": net, "optim": optim}
    with df.Checkpointer(tmp_path, keep=df.keep(last=1)) as ckpt:
        ckpt.attach(optim)
        for step in range(4):
            save(ckpt, step, state)
        net.weight.data = torch.randn(8, 8)

        def refused(*_: Any) -> Any:
            raise CheckpointError("of the test")

        with monkeypatch.context() as patch:
            patch.setattr("deepfreeze.checkpointer.table_of", refused)
            failed = ckpt.save(4, state)
            assert failed is not None
            with pytest.raises(CheckpointError):
                failed.wait()
        for step in range(5, 9):
            assert save(ckpt, step, state) == as_found(state)
