"""Runs work in forked children of a process that has imported torch, and may kill them.

A fresh interpreter that imports torch costs a second or two, a fork some milliseconds. The parent
must have started no threads: it imports, forks and waits, nothing else.
"""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

REPORT_BYTES_MAX = 1 << 16  # the capacity of a pipe, so that a child never waits for its reader


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    killed: bool
    report: str  # its output so far
    seconds: float


class ChildFailedError(RuntimeError):
    """A child ended neither well nor by our SIGKILL."""


Say = Callable[[str], None]


def fork_and_run(work: Callable[[Say], None], kill_after: float | None = None) -> Ended:
    """`work` gets a function that reports to the parent; SIGKILL comes after so many seconds."""
    reader, writer = os.pipe()
    began = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        run_child(work, writer)
    os.close(writer)
    try:
        ended_itself = wait_for_end(pid, kill_after)
        if not ended_itself:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        seconds = time.perf_counter() - began
        report = os.read(reader, REPORT_BYTES_MAX).decode()
    finally:
        os.close(reader)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if not killed and status != 0:
        raise ChildFailedError(f"child {pid} ended with status {status}: {report}")
    return Ended(killed, report, seconds)


def run_child(work: Callable[[Say], None], writer: int) -> None:
    """Never returns into the parent's code."""
    status = 1
    try:
        work(lambda text: void(os.write(writer, text.encode())))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def void(_: object) -> None:
    return None


def wait_for_end(pid: int, seconds: float | None) -> bool:
    """Waits for the end of a process; False if the time is up first."""
    descriptor = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return bool(ready)
    finally:
        os.close(descriptor)
