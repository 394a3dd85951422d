"""Handles, the thread that completes them, and the end of a checkpointer."""

import ctypes
import gc
import logging
import signal
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from failing import fail
from test_process import python
from testkit import save

import deepfreeze as df
from deepfreeze import checkpointer as checkpointer_module
from deepfreeze.saving import completer as completer_module


def test_a_future_of_a_save_can_not_be_cancelled(ckpt: df.Checkpointer) -> None:
    handle = ckpt.save(1, {"x": torch.ones(1 << 20)})
    assert handle is not None
    assert [f.cancel() for f in (handle.captured, handle.local, handle.durable)] == [False] * 3
    handle.wait("durable", timeout=60)
    assert handle.durable.result() == 1
    assert ckpt.failed_saves == 0


def test_without_a_thread_save_itself_waits(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with df.Checkpointer(run) as ckpt:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            handle = ckpt.save(1, {"x": torch.ones(10)})
        assert handle is not None
        assert handle.durable.result(timeout=0) == 1
        assert ckpt.in_flight() == []
        save(ckpt, 2, {"x": torch.ones(10)})


class Raising(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("the log is full")


def test_a_log_handler_that_raises_ends_no_thread(run: Path) -> None:
    raising = Raising()
    logging.getLogger("deepfreeze").addHandler(raising)
    try:
        done = completer_module.Completer()
        handle = df.SaveHandle(1, None)  # without a native handle, its completion fails
        done.add(handle)
        with pytest.raises(AssertionError):
            handle.durable.result(timeout=60)
        done.join()
        assert (done.failed_saves, done.in_flight()) == (1, [])
    finally:
        logging.getLogger("deepfreeze").removeHandler(raising)


def test_a_child_forked_during_save_still_ends_by_sigterm(run: Path) -> None:
    done = python(
        """
        import os, signal, sys, time, deepfreeze as df
        ckpt = df.Checkpointer(sys.argv[1])
        df.finish_on_sigterm(ckpt)
        children = []

        class Forks:
            def state_dict(self):
                pid = os.fork()
                if pid == 0:
                    os.kill(os.getpid(), signal.SIGTERM)
                    os._exit(9)  # SIGTERM had no effect
                children.append(pid)
                return {}

            def load_state_dict(self, state):
                pass

        ckpt.save(1, {"f": Forks()}).wait()
        print(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
        """,
        run,
    )
    assert (done.returncode, done.stdout) == (0, f"{-signal.SIGTERM}\n"), done.stderr


class NeverEnds:
    """A native handle of a save that hangs in the kernel."""

    def wait(self, level: str, timeout: float) -> None:
        time.sleep(min(timeout, 0.05))
        raise TimeoutError


def test_the_end_of_a_with_block_gives_up_and_lets_the_exception_out(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completer_module, "EXIT_SECONDS_MAX", 0.2)
    handle = df.SaveHandle(1, NeverEnds())  # type: ignore[arg-type]
    ckpt = df.Checkpointer(run)
    ckpt._completer.add(handle)
    with pytest.raises(ZeroDivisionError), ckpt:
        raise ZeroDivisionError
    with pytest.raises(TimeoutError, match="step 1 was not durable"):
        handle.durable.result(timeout=10)
    assert ckpt._completer.gave_up
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(ckpt._engine))  # giving up keeps it alive


def test_a_failing_close_does_not_hide_the_exception(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ckpt = df.Checkpointer(run)
    with monkeypatch.context() as patch:
        patch.setattr(ckpt, "close", fail(df.CheckpointError("close failed")))
        with pytest.raises(ZeroDivisionError), ckpt:
            raise ZeroDivisionError
        with pytest.raises(df.CheckpointError, match="close failed"), ckpt:
            pass
    ckpt.close()


def test_a_dropped_checkpointer_closes_its_engine_without_the_gil(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    real = checkpointer_module._core.Engine

    class Engine:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._real = real(*arguments, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def close(self) -> None:
            closed.append(True)
            self._real.close()

    monkeypatch.setattr(checkpointer_module._core, "Engine", Engine)
    ckpt = df.Checkpointer(run)
    handle = ckpt.save(1, {"x": torch.ones(1 << 22)})
    assert handle is not None
    del ckpt
    gc.collect()
    assert closed == [True]
    handle.wait(timeout=60)
    other = df.Checkpointer(run)
    other.close()
    del other
    gc.collect()
    assert closed == [True, True]


class Waits(Future[int]):
    """A future that never comes, and remembers how long it was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def exception(self, timeout: float | None = None) -> BaseException | None:
        assert timeout is not None
        self.seconds += timeout
        return super().exception(timeout)

    def result(self, timeout: float | None = None) -> int:
        assert timeout is not None
        self.seconds += timeout
        return super().result(timeout)


@pytest.mark.parametrize("level", ["captured", "local", "durable"])
def test_a_timeout_is_waited_for_once(level: str) -> None:
    handle = df.SaveHandle(1, NeverEnds())  # type: ignore[arg-type]
    future = Waits()
    setattr(handle, level, future)
    with pytest.raises(df.CheckpointTimeoutError):
        handle.wait(level, 0.2)  # type: ignore[arg-type]
    assert future.seconds <= 0.2
