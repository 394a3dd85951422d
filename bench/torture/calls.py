"""Holds a process at the n-th call with which it changes a file below a directory.

Another process is handed each such call before it is carried out, and lets it go on or does not.
So a call is never cut in two, and what is written through a mapping of a file is no call. Where
several threads call at once, those before the one that is held may still be under way.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bench.storage.menu import ROOT
from bench.torture import seccomp

INT_MASK = (1 << 32) - 1
HERE = INT_MASK & -100  # AT_FDCWD
MAKES_OR_EMPTIES = os.O_CREAT | os.O_TRUNC
NAME_BYTES_MAX = 4096
CLOSED, BEGIN, END, HEARD = b"c", b"b", b"e", b"h"


@dataclass(frozen=True)
class Arguments:
    """Which of a call's say what it changes: an open file, or a name and what it is relative to."""

    file: int | None = None
    name: int = 0
    below: int | None = None
    flags: int | None = None  # of an open; without one of two flags it changes nothing
    how: int | None = None  # where in memory those are
    count: int | None = None  # of what is submitted, whatever file that is for


CALLS = {
    "open": Arguments(name=0, flags=1),
    "openat": Arguments(below=0, name=1, flags=2),
    "openat2": Arguments(below=0, name=1, how=2),
    "creat": Arguments(name=0),
    "mkdir": Arguments(name=0),
    "mkdirat": Arguments(below=0, name=1),
    "rename": Arguments(name=0),
    "renameat": Arguments(below=0, name=1),
    "renameat2": Arguments(below=0, name=1),
    "unlink": Arguments(name=0),
    "unlinkat": Arguments(below=0, name=1),
    "rmdir": Arguments(name=0),
    "link": Arguments(name=1),
    "linkat": Arguments(below=2, name=3),
    "symlink": Arguments(name=1),
    "symlinkat": Arguments(below=1, name=2),
    "truncate": Arguments(name=0),
    "ftruncate": Arguments(file=0),
    "fallocate": Arguments(file=0),
    "write": Arguments(file=0),
    "writev": Arguments(file=0),
    "pwrite64": Arguments(file=0),
    "pwritev": Arguments(file=0),
    "pwritev2": Arguments(file=0),
    "sendfile": Arguments(file=0),
    "copy_file_range": Arguments(file=2),
    "io_uring_enter": Arguments(count=1),
}


@cache
def known() -> dict[int, str]:
    """By number."""
    return seccomp.numbers(CALLS)


@dataclass
class Gate:
    """Of the process whose calls are watched."""

    to_watch: socket.socket

    def close(self) -> None:
        """From now on each call waits for the other process."""
        descriptor = seccomp.hand_over(known())
        socket.send_fds(self.to_watch, [CLOSED], [descriptor])
        self.to_watch.recv(1)
        os.close(descriptor)

    @contextmanager
    def counting(self) -> Iterator[None]:
        self._tell(BEGIN)
        yield
        self._tell(END)

    def _tell(self, word: bytes) -> None:
        self.to_watch.sendall(word)
        self.to_watch.recv(1)


@dataclass
class Watch:
    """Of the other process. Counts; holds the call of number `hold_at`, and all that follow."""

    process: int
    directory: Path  # resolved
    hold_at: int  # 0: none
    from_gate: socket.socket
    counting: bool = False
    counted: int = 0
    held: str = ""  # the call, and what it is about
    _requests: int = field(default=-1, init=False)

    def run_until_held(self) -> bool:
        """False where the process ends before."""
        poll, ended = select.poll(), os.pidfd_open(self.process)
        poll.register(ended, select.POLLIN)
        poll.register(self.from_gate, select.POLLIN)
        try:
            while not self.held:
                ready = {descriptor for descriptor, _ in poll.poll()}
                if ended in ready:
                    return False
                if self._requests in ready:
                    self._take_request()
                elif not self._take_word(poll):
                    poll.unregister(self.from_gate)
        finally:
            os.close(ended)
        return True

    def close(self) -> None:
        """What is held then fails, so whoever is to die should have died before."""
        if self._requests >= 0:
            os.close(self._requests)

    def _take_request(self) -> None:
        request = seccomp.receive(self._requests)
        what = self.changed_by(request) if request is not None and self.counting else ""
        self.counted += bool(what)
        if what and self.counted == self.hold_at:
            self.held = what
        elif request is not None:
            seccomp.go_on(self._requests, request)

    def changed_by(self, request: seccomp.Request) -> str:
        """The call and the file below the directory; empty where it changes none."""
        call = known()[request.number]
        if CALLS[call].count is not None:
            return call if request.arguments[CALLS[call].count] > 0 else ""
        try:
            path = path_of(CALLS[call], request)
        except OSError:  # the caller has been killed, or is about to get an error
            return ""
        if path is None or not path.is_relative_to(self.directory):
            return ""
        return f"{call} {path.relative_to(self.directory)}"

    def _take_word(self, poll: select.poll) -> bool:
        """False where the process has closed its gate."""
        word, descriptors, _, _ = socket.recv_fds(self.from_gate, 1, 1)
        if not word:
            return False
        if word == CLOSED:
            (self._requests,) = descriptors
            poll.register(self._requests, select.POLLIN)
        self.counting = word == BEGIN
        self.from_gate.sendall(HEARD)
        return True


def path_of(one: Arguments, request: seccomp.Request) -> Path | None:
    """What is changed. None where nothing is, as by an open that only reads."""
    values = request.arguments
    process = Path("/proc") / str(request.thread)
    if one.file is not None:
        return (process / "fd" / str(values[one.file] & INT_MASK)).readlink()
    if one.flags is not None and not values[one.flags] & MAKES_OR_EMPTIES:
        return None
    if one.how is not None and not flags_at(process, values[one.how]) & MAKES_OR_EMPTIES:
        return None
    below = HERE if one.below is None else values[one.below] & INT_MASK
    start = process / ("cwd" if below == HERE else f"fd/{below}")
    name = memory(process, values[one.name], NAME_BYTES_MAX).partition(b"\0")[0]
    path = start.readlink() / os.fsdecode(name)
    return path.parent.resolve() / path.name


def flags_at(process: Path, address: int) -> int:
    """Of a struct open_how."""
    return int.from_bytes(memory(process, address, 8), sys.byteorder)


def memory(process: Path, address: int, size: int) -> bytes:
    """Fewer bytes where what follows is not mapped."""
    with (process / "mem").open("rb", buffering=0) as file:
        file.seek(address)
        return file.read(size)


def missing() -> str:
    """Why no calls can be held here; empty where they can."""
    command = [sys.executable, "-m", __spec__.name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or ("" if done.returncode == 0 else f"ended: {done.returncode}")


def main() -> None:
    try:
        seccomp.hand_over(known())
    except seccomp.SeccompError as error:
        print(error, flush=True)
    os._exit(0)  # at once: from here on a write waits for an answer that nobody gives


if __name__ == "__main__":
    main()
