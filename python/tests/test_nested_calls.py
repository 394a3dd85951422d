"""Calls that a signal handler makes while another one of the same checkpointer is running."""

from __future__ import annotations

import logging
import os
import pkgutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from testkit import save

import deepfreeze as df


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Has the next SIGUSR1 do something."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda action: void(signal.signal(signal.SIGUSR1, lambda *_: void(action())))
    signal.signal(signal.SIGUSR1, before)


def void(_: object) -> None:
    """No handler returns anything."""


def comes_inside(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """A signal, once, when that function of the package is called."""
    whole = pkgutil.resolve_name(place)

    def signalled(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(place, whole)
        os.kill(os.getpid(), signal.SIGUSR1)
        return whole(*given, **more)

    monkeypatch.setattr(place, signalled)


def state_of() -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    return {"copied aside": torch.randn(300, 400).t(), "in place": torch.randn(1000)}


def assert_saved(ckpt: df.Checkpointer, step: int, state: dict[str, torch.Tensor]) -> None:
    loaded = ckpt.load(step)
    assert all(torch.equal(loaded[key], value) for key, value in state.items())


# Between the walk, whose copies the table points to, and the engine.
INSIDE_SAVE = "deepfreeze.saving.attached.LazyCapture.settle_early"


@pytest.mark.parametrize("call", ["save", "step", "prewarm"])
@pytest.mark.parametrize("outer", ["save", "step"])
def test_what_comes_into_a_save_is_left_out(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    on_signal: Any, call: str, outer: str,
) -> None:  # fmt: skip
    state = state_of()
    save(ckpt, 1, state)
    given = (state,) if call == "prewarm" else (100, state)
    returned: list[object] = []
    on_signal(lambda: returned.append(getattr(ckpt, call)(*given)))
    comes_inside(monkeypatch, INSIDE_SAVE)
    with caplog.at_level(logging.WARNING, "deepfreeze"):
        handle = getattr(ckpt, outer)(2, state)
    handle.wait()
    assert returned == [None]
    assert f"{call}() inside {outer}() is left out" in caplog.text
    assert_saved(ckpt, 2, state)
    assert ckpt.steps() == [1, 2]
    save(ckpt, 3, state)


def test_a_restore_that_comes_into_a_save_is_refused(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, on_signal: Any
) -> None:
    state = state_of()
    save(ckpt, 1, state)
    refused: list[str] = []

    def restores() -> None:
        with pytest.raises(df.CheckpointError) as raised:
            ckpt.restore(state)
        refused.append(str(raised.value))

    on_signal(restores)
    comes_inside(monkeypatch, INSIDE_SAVE)
    save(ckpt, 2, state)
    assert refused == ["restore() inside save() is refused"]
    assert ckpt.restore(state) == 2


def test_a_state_that_is_half_restored_is_not_saved(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, on_signal: Any
) -> None:
    state = state_of()
    save(ckpt, 1, state)
    on_signal(lambda: ckpt.save(2, state))
    comes_inside(monkeypatch, "deepfreeze.restoring.restorer.warn_of_values")
    assert ckpt.restore(state) == 1
    ckpt.wait()
    assert ckpt.steps() == [1]


def test_what_is_deferred_comes_after_the_save_and_may_save(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, on_signal: Any, run: Path
) -> None:
    state = state_of()
    on_signal(lambda: ckpt.defer(lambda: ckpt.save(2, state)))
    comes_inside(monkeypatch, INSIDE_SAVE)
    save(ckpt, 1, state)
    ckpt.wait()
    assert ckpt.steps() == [1, 2]
    assert not ckpt.defer(lambda: None), "no call is running"
