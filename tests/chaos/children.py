"""Forked children that say lines to their supervisor, and end with it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from lab.faults.parent import end_with_parent

Event = dict[str, Any]
Say = Callable[..., None]  # say(kind, **members)

DEADLINE_SECONDS = 120.0  # for whatever is to come; only a hang takes so long
_READ_BYTES = 1 << 20


class ViolationError(AssertionError):
    """A promise is broken."""


class Child:
    """One process. The parent must have no threads: it is forked."""

    def __init__(self, name: str, work: Callable[[Say], None], log: int) -> None:
        """Its standard error goes to the descriptor `log`."""
        self.name = name
        self.status: int | None = None  # of its end
        self.stopped = False
        self.heard = time.monotonic()  # when it last said something
        self._rest = b""
        self._reader, writer = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reader)
            _live(work, writer, log, parent)
        os.close(writer)
        os.set_blocking(self._reader, False)

    def fileno(self) -> int:
        """The descriptor to read from, for select()."""
        return self._reader

    @property
    def killed(self) -> bool:
        return self.status is not None and -os.waitstatus_to_exitcode(self.status) == signal.SIGKILL

    def events(self) -> list[Event]:
        """All that it has said since the last call."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._reader, _READ_BYTES):
                self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        if lines:
            self.heard = time.monotonic()
        return [json.loads(line) for line in lines]

    def ended(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid == self.pid else None
        return self.status is not None

    def kill(self) -> None:
        """Kills it and waits for its end; its output so far can still be read."""
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            _, self.status = os.waitpid(self.pid, 0)

    def stop(self) -> None:
        self.stopped = True
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        self.stopped = False
        self.heard = time.monotonic()
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        os.close(self._reader)

    def check_alive(self) -> None:
        """ViolationError if it has been silent for too long."""
        silent = time.monotonic() - self.heard
        if silent > DEADLINE_SECONDS and not self.stopped and self.status is None:
            raise ViolationError(f"{self.name} hangs: nothing heard for {silent:.0f} s")


def _live(work: Callable[[Say], None], writer: int, log: int, parent: int) -> None:
    """Never returns into the parent's code."""
    status = 1
    try:
        end_with_parent()
        os.dup2(log, sys.stderr.fileno())
        os.dup2(log, sys.stdout.fileno())
        if os.getppid() == parent:
            work(_sayer(writer))
            status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _sayer(writer: int) -> Say:
    lock = threading.Lock()  # the thread that completes saves speaks as well

    def say(kind: str, **members: object) -> None:
        line = json.dumps({"kind": kind, **members}).encode() + b"\n"
        with lock:
            while line:
                line = line[os.write(writer, line) :]

    return say


def open_log(directory: Path) -> int:
    """For the standard error of children."""
    return os.open(directory / "stderr.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)


def compile_once(directory: Path) -> None:
    """Has Python's cache written once: otherwise each child would compile deepfreeze."""
    sys.pycache_prefix = str(directory / "pycache")
    sys.dont_write_bytecode = False


def run_child(
    name: str, work: Callable[[Say], None], log: int, kill_after: float | None = None
) -> tuple[Child, list[Event]]:
    """Until its end, or until it is killed after so many seconds; and all that it said."""
    child = Child(name, work, log)
    ends = None if kill_after is None else time.monotonic() + kill_after
    events: list[Event] = []
    try:
        while not child.ended():
            _wait([child], 0.002 if ends is not None else 0.02)
            events += child.events()
            child.check_alive()
            if ends is not None and time.monotonic() >= ends:
                child.kill()
        events += child.events()
    finally:
        child.close()
    return child, events


def _wait(readers: Sequence[Child], seconds: float) -> None:
    # Its end makes the pipe readable for good, which would be a busy loop: hence the pause.
    ready, _, _ = select.select(readers, [], [], seconds)
    if ready:
        time.sleep(0.001)


def is_readable(stream: IO[str]) -> bool:
    """Whether a line, or the end, can be read now: writers write whole lines."""
    ready, _, _ = select.select([stream], [], [], 0)
    return bool(ready)
