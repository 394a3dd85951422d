"""Interrupts, and signals that end a program, at the most harmful places."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from testkit import save
from torch import nn

import deepfreeze as df
from deepfreeze.saving.calls import Calls
from deepfreeze.saving.completer import Completer
from deepfreeze.saving.guards import Watch
from deepfreeze.saving.handle import ExitDeadline, ExitDeadlineError

SECONDS = 60.0  # a deadline for calls that must not hang


class Ranks(df.DirectoryRanks):
    """Into whose next exchange an exception comes."""

    raised: BaseException | None = None

    def gather(self, own: bytes) -> list[bytes] | None:
        if self.raised is not None:
            raise self.raised
        return super().gather(own)


@pytest.mark.parametrize("raised", [KeyboardInterrupt("a"), SystemExit(7)])
@pytest.mark.parametrize("call", ["save", "prewarm", "restore"])
def test_what_ends_a_program_comes_out_of_a_call_among_ranks(
    tmp_path: Path, call: str, raised: BaseException
) -> None:
    state = {"x": torch.ones(10)}

    def work(rank: int) -> str:
        ranks = Ranks(tmp_path / "ranks", rank=rank, world_size=2, timeout_seconds=SECONDS)
        with df.Checkpointer(tmp_path / "run", ranks=ranks) as ckpt:
            save(ckpt, 1, state)
            if rank == 1:
                return ""
            ranks.raised = raised
            with pytest.raises(type(raised)):
                getattr(ckpt, call)(*[2, state] if call == "save" else [state])
            ranks.raised = None
            handle = ckpt.save(3, state)
            assert handle is not None
            return str(handle.status().error)

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(work, range(2)))
    assert "have lost each other" in said[0], "and rank 1 is not waited for"


@pytest.fixture
def trained(ckpt: df.Checkpointer) -> Any:
    """An attached optimizer's state."""
    net = nn.Linear(512, 512)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(torch.randn(1, 512)).sum().backward()
    optimizer.step()
    ckpt.attach(optimizer)
    return {"net": net, "optimizer": optimizer}


def assert_goes_on(ckpt: df.Checkpointer, state: Any) -> None:
    for step in range(100, 110):
        save(ckpt, step, state)
    assert ckpt.failed_saves == 0
    assert ckpt.in_flight() == []


def interrupt_next(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> list[Any]:
    """Raises KeyboardInterrupt instead of the next call; returns a list that gets its object."""
    real = getattr(owner, method)
    called: list[Any] = []

    def interrupted(own: Any) -> None:
        monkeypatch.setattr(owner, method, real)
        called.append(own)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, method, interrupted)
    return called


def test_an_interrupt_while_the_completing_thread_starts(
    ckpt: df.Checkpointer, trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = threading.Event.wait

    def wait(event: threading.Event, timeout: float | None = None) -> bool:
        done = real(event, timeout)
        if threading.current_thread() is threading.main_thread():
            monkeypatch.setattr(threading.Event, "wait", real)
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(threading.Event, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        ckpt.save(1, trained)
    assert_goes_on(ckpt, trained)


def test_an_interrupt_before_the_completing_thread_starts(
    ckpt: df.Checkpointer, trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_next(monkeypatch, threading.Thread, "start")
    with pytest.raises(KeyboardInterrupt):
        ckpt.save(1, trained)
    assert_goes_on(ckpt, trained)


def test_a_thread_that_comes_late_leaves_the_saves_to_the_one_in_its_place(
    ckpt: df.Checkpointer, trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = interrupt_next(monkeypatch, threading.Thread, "start")
    with pytest.raises(KeyboardInterrupt):
        ckpt.save(1, trained)
    save(ckpt, 2, trained)
    late[0].start()
    late[0].join(SECONDS)
    assert not late[0].is_alive()
    assert_goes_on(ckpt, trained)


def test_an_interrupt_at_the_end_of_a_call(
    ckpt: df.Checkpointer, trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_next(monkeypatch, Calls, "run_deferred")
    with pytest.raises(KeyboardInterrupt):
        ckpt.save(1, trained)
    assert_goes_on(ckpt, trained)


def test_close_goes_on_where_it_was_interrupted(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = ckpt.save(1, {"x": torch.randn(1 << 20)})
    assert handle is not None
    interrupt_next(monkeypatch, Completer, "join_or_give_up")
    with pytest.raises(KeyboardInterrupt):
        ckpt.close()
    with pytest.raises(df.CheckpointError, match="closed"):
        ckpt.save(2, {"x": 1})
    ckpt.close()
    assert handle.durable.done()


@pytest.fixture
def on_usr1() -> Iterator[Callable[[Callable[[], object]], None]]:
    before = signal.getsignal(signal.SIGUSR1)

    def install(action: Callable[[], object]) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: (action(), None)[1])

    yield install
    signal.signal(signal.SIGUSR1, before)


def test_a_save_that_comes_into_a_fence_is_left_out(
    ckpt: df.Checkpointer,
    trained: Any,
    on_usr1: Callable[[Callable[[], object]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    returned: list[object] = []
    deferred: list[bool] = []
    done: list[str] = []

    def handler() -> None:
        returned.append(ckpt.save(100, trained))
        deferred.append(ckpt.defer(lambda: done.append("later")))
        assert not done

    on_usr1(handler)
    real = Watch.changed

    def changed(watch: Watch) -> list[str]:
        if threading.current_thread() is threading.main_thread():
            monkeypatch.setattr(Watch, "changed", real)
            os.kill(os.getpid(), signal.SIGUSR1)
        return real(watch)

    for step in range(1, 20):
        save(ckpt, step, trained)
    monkeypatch.setattr(Watch, "changed", changed)
    for step in range(20, 1000):
        if returned:  # the fence was faster than the thread that compares otherwise
            break
        ckpt.save(step, trained)
        trained["optimizer"].step()
    ckpt.wait()
    assert (returned, deferred, done) == ([None], [True], ["later"])
    assert 100 not in ckpt.steps()


@pytest.mark.parametrize("outer", ["", "restore"])
def test_what_is_deferred_in_a_fence_is_done_after_it(outer: str) -> None:
    calls = Calls()
    done: list[str] = []
    said: list[bool] = []

    def fence(guard: int) -> None:
        said.append(calls.defer(lambda: done.append("later")))
        assert not done

    calls.running = outer
    calls.in_fence(fence, 0)
    assert (said, calls.running) == ([True], outer)
    assert done == ([] if outer else ["later"])
    calls.run_deferred()  # as alone() does at the end of restore()
    assert done == ["later"]


def test_the_deadline_at_the_end_is_of_each_save(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended:
        def is_alive(self) -> bool:
            return False

    monkeypatch.setattr(threading, "main_thread", Ended)
    deadline = ExitDeadline(0.02)
    deadline.check(1)
    time.sleep(0.05)
    with pytest.raises(ExitDeadlineError, match="step 1"):
        deadline.check(1)
    deadline.begin()
    deadline.check(2)


WAITS_FOR_A_RANK = """
import os, signal, sys, threading, time
import deepfreeze as df
rank = 0 if os.fork() else 1
ranks = df.DirectoryRanks("ranks", rank=rank, world_size=2, timeout_seconds=600)
ckpt = df.Checkpointer("run", ranks=ranks)
ckpt.save(1, {"x": 1}).wait()
if rank == 1:
    os._exit(0)
df.finish_on_sigterm(ckpt, seconds_max=0.5)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
ckpt.save(2, {"x": 2})
"""


def test_sigterm_does_not_wait_for_ever_for_a_save_that_waits_for_a_rank(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WAITS_FOR_A_RANK], cwd=tmp_path, timeout=4 * SECONDS, check=False
    )
    assert done.returncode == -signal.SIGTERM
