"""Captures that begin before their save() or end after it, and the ends of windows."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from testkit import save
from torch import Tensor, nn

import deepfreeze as df
from deepfreeze import _core
from deepfreeze.saving.attached import Window
from deepfreeze.saving.guards import Watch

ROWS, WIDTH = 1024, 64  # 256 KiB


class Held:
    """Keeps every save from being compared until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        finish = Window.finish

        def finish_later(window: Window) -> list[str]:
            assert self.go.wait(60)
            return finish(window)

        monkeypatch.setattr(Window, "finish", finish_later)


def trained(tensor: Tensor) -> torch.optim.Optimizer:
    optim = torch.optim.SGD([tensor], lr=0.1)
    tensor.grad = torch.ones_like(tensor)
    return optim


def early(ckpt: df.Checkpointer, weight: nn.Parameter) -> tuple[dict[str, Any], Any]:
    """A state whose second save begins with its update."""
    optim = trained(weight)
    ckpt.attach(optim, mode="after_update")
    state: dict[str, Any] = {"w": weight}
    first = ckpt.step(1, state)
    assert first is not None
    first.wait()
    optim.step()
    return state, optim


def test_rows_of_an_attached_table_that_another_guard_changes_are_eager(
    ckpt: df.Checkpointer,
) -> None:
    table = nn.Embedding(ROWS, WIDTH)
    table.weight.requires_grad_(False)
    rows = nn.Parameter(table.weight.data[-600:])
    optim = trained(rows)
    ckpt.attach(table)
    ckpt.attach(optim)
    for step in range(1, 6):
        before = table.weight.clone()
        handle = ckpt.save(step, {"table": table, "optim": optim})
        optim.step()
        assert handle is not None
        handle.wait()
        assert handle.status().guarded_bytes == 0
        assert torch.equal(ckpt.load(step)["table"]["weight"], before)


def test_fence_ends_an_early_capture(ckpt: df.Checkpointer) -> None:
    weight = nn.Parameter(torch.randn(ROWS, WIDTH))
    state, _ = early(ckpt, weight)
    ckpt.fence()
    weight.data[7].fill_(7)  # has no version counter
    handle = ckpt.step(2, state)
    assert handle is not None
    handle.wait()
    assert not handle.status().early
    assert torch.equal(ckpt.load(2)["w"], weight)


def refused_or_nothing(call: Callable[..., Any], *given: Any, **more: Any) -> None:
    with contextlib.suppress(ValueError, TypeError, UnicodeEncodeError):
        assert call(*given, **more) is None


@pytest.mark.parametrize("call", ["save", "step"])
@pytest.mark.parametrize("wrong", [{"step": 1 << 64}, {"tags": {"host": "caf\udce9"}}])
def test_a_save_that_is_refused_leaves_no_early_capture(
    ckpt: df.Checkpointer, wrong: dict[str, Any], call: str
) -> None:
    weight = nn.Parameter(torch.randn(ROWS, WIDTH))
    state, _ = early(ckpt, weight)
    ckpt._engine.fence_all()  # it is captured, and stays so
    refused_or_nothing(getattr(ckpt, call), **{"step": 2, "state": state, **wrong})
    weight.data[7].fill_(7)
    save(ckpt, 3, state)
    assert torch.equal(ckpt.load(3)["w"], weight)


def test_a_step_that_is_not_saved_leaves_no_early_capture(run: Path) -> None:
    weight = nn.Parameter(torch.randn(ROWS, WIDTH))
    state = {"w": weight}
    optim = trained(weight)
    with df.Checkpointer(run, every=df.every(steps=10), profile="latency") as ckpt:
        ckpt.attach(optim, mode="after_update")
        ckpt.prewarm(state)
        assert ckpt.step(9, state) is None
        optim.step()
        ckpt._engine.fence_all()
        assert ckpt.step(11, state) is None  # step 10, which would have been saved, was left out
        weight.data[7].fill_(7)
        save(ckpt, 12, state)
        assert torch.equal(ckpt.load(12)["w"], weight)


def test_the_first_capture_of_all_may_begin_early(run: Path) -> None:
    weight = nn.Parameter(torch.randn(ROWS, WIDTH))
    optim = trained(weight)
    with df.Checkpointer(run, every=df.every(steps=2), profile="latency") as ckpt:
        ckpt.attach(optim, mode="after_update")
        for step in (1, 2):
            optim.step()
            handle = ckpt.step(step, {"w": weight})
        assert handle is not None
        handle.wait()
        assert handle.status().early
        assert torch.equal(ckpt.load(2)["w"], weight)


def test_an_interrupt_in_a_fence_does_not_lose_what_it_saw(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    weight = nn.Parameter(torch.randn(ROWS, WIDTH))
    optim = trained(weight)
    ckpt.attach(optim)
    handle = ckpt.save(1, {"w": weight})
    assert handle is not None
    with torch.no_grad():
        weight[3] += 1  # without a fence

    def interrupted(_: Watch) -> list[str]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "changed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            optim.step()
    held.go.set()
    with pytest.raises(df.TornCaptureError):
        handle.wait("durable")


def test_a_save_that_is_interrupted_ends_while_its_exception_is_kept(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = nn.Parameter(torch.randn(ROWS, WIDTH))
    ckpt.attach(trained(weight))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ckpt._lazy, "open_window", interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:
            ckpt.save(1, {"w": weight})
    ends_soon(ckpt.wait)
    assert kept.value.__traceback__ is not None
    save(ckpt, 2, {"w": weight})
    assert ckpt.steps() == [2]


def ends_soon(call: Callable[[], object]) -> None:
    """Fails if the call hangs; its thread is then left."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_none_after_a_state_that_was_refused(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepfreeze.state.encoder.TEXT_BYTES_MAX", 1 << 20)
    for step, value in enumerate([1.5, list(range(300_000)), None]):
        if isinstance(value, list):
            with pytest.raises(df.EncodeError):
                ckpt.save(step, {"a": value})
        else:
            save(ckpt, step, {"a": value})
            assert ckpt.load(step) == {"a": value}


def test_a_tensor_that_counts_its_versions_apart_is_watched(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    weight = nn.Parameter(torch.randn(ROWS, WIDTH))
    ckpt.attach(trained(weight))
    own = weight.data
    handle = ckpt.save(1, {"w": own})
    assert handle is not None
    own[3].add_(1)
    held.go.set()
    with pytest.raises(df.TornCaptureError):
        handle.wait("durable")


def test_memory_that_is_replaced_stays_until_it_is_captured(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    weight = torch.randn(ROWS, WIDTH)
    ckpt.attach(trained(weight))
    for step in (1, 2):
        ckpt._lazy._guards.eager.clear()
        held.go.clear()
        handle = ckpt.save(step, {"w": weight})
        weight.data = torch.randn(ROWS, WIDTH)
        gc.collect()
        held.go.set()
        assert handle is not None
        with pytest.raises(df.TornCaptureError):
            handle.wait("durable")


def test_a_native_handle_that_nobody_has_fails_its_save(run: Path) -> None:
    data = bytearray(os.urandom(1 << 20))
    view = torch.frombuffer(data, dtype=torch.uint8)
    table = _core.Table([("x", "U8", (len(data),), "", len(data), None)])
    table.place([(0, view.data_ptr(), 1, -1)])
    engine = _core.Engine(str(run), profile="latency")
    for step in (1, 2):
        handle = engine.save(step, table, "", {}, {}, {}, confirm=True)
        assert handle is not None
        del handle  # as an interrupt at the return of save() does
    engine.wait()
    last = engine.save(3, table, "", {}, {}, {})
    assert last is not None
    last.wait("durable", 60)
    engine.close()
    assert [info.step for info in _core.list_checkpoints(str(run))] == [3]


def test_an_error_while_comparing_counts_as_a_change(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    weight = torch.randn(ROWS, WIDTH)
    ckpt.attach(trained(weight))
    handle = ckpt.save(1, {"w": weight})
    assert handle is not None
    torch.utils.swap_tensors(weight, torch.eye(3).to_sparse())
    held.go.set()
    with pytest.raises(df.TornCaptureError):
        handle.wait("durable")
    ckpt.wait()


def test_want_of_memory_for_an_early_capture_does_not_leave_the_step(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = nn.Parameter(torch.randn(ROWS, WIDTH))
    state, optim = early(ckpt, weight)

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            return getattr(ckpt._engine, name)

        def begin_capture(self, _: object) -> bool:
            raise df.NoSpaceError("no memory")

    monkeypatch.setattr(ckpt._lazy, "_engine", Refusing())
    ckpt._arm(state)
    optim.step()
    save(ckpt, 2, state)


def test_what_has_no_memory_of_its_own_can_be_attached(ckpt: df.Checkpointer) -> None:
    odd = nn.Module()
    odd.sparse = nn.Parameter(torch.eye(3).to_sparse())
    odd.lazy = nn.UninitializedParameter()
    odd.plain = nn.Parameter(torch.randn(ROWS, WIDTH))
    ckpt.attach(odd)
    assert save(ckpt, 1, {"w": odd.plain}).status().guarded_bytes == ROWS * WIDTH * 4


def test_a_fence_waits_while_another_thread_compares() -> None:
    began, go = threading.Event(), threading.Event()

    class Slow(Watch):
        def changed(self) -> list[str]:
            began.set()
            assert go.wait(60)
            return super().changed()

    weight = torch.randn(4)
    watch = Slow(["w"], [weight])
    window = Window(None, {1: watch}, lambda *_: None)  # type: ignore[arg-type]
    torn: list[str] = []
    comparing = threading.Thread(target=lambda: torn.extend(window.finish()))
    comparing.start()
    assert began.wait(60)
    threading.Timer(0.05, go.set).start()
    assert not window.guarded_by(1)
    weight.add_(1)
    comparing.join()
    assert torn == []


def test_the_other_mode_takes_the_place_of_the_first(ckpt: df.Checkpointer) -> None:
    optim = trained(torch.randn(4))
    ckpt.attach(optim)
    ckpt.attach(optim, mode="after_update")
    assert [guard.mode for guard in ckpt._lazy._guards] == ["after_update"]
    assert len(optim._optimizer_step_pre_hooks) == 1


@pytest.mark.parametrize("closed", [True, False])
def test_the_end_of_a_checkpointer_gives_its_threads_back(tmp_path: Path, closed: bool) -> None:
    weight = torch.randn(ROWS, WIDTH)
    optim = trained(weight)
    threads = set(os.listdir("/proc/self/task"))
    for number in range(3):
        ckpt = df.Checkpointer(tmp_path / str(number), profile="latency")
        ckpt.attach(optim)
        save(ckpt, 1, {"w": weight})
        if closed:
            ckpt.close()
        del ckpt
        gc.collect()
        expect_no_other(threads)


def expect_no_other(before: set[str]) -> None:
    """A joined thread is listed until the kernel has taken it off, a moment later."""
    deadline = time.monotonic() + 60
    while found := set(os.listdir("/proc/self/task")) - before:
        assert time.monotonic() < deadline, f"{len(found)} threads are left"
        time.sleep(0.01)
