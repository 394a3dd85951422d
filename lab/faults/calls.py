"""Holds a process at the n-th call that writes, makes, renames, removes or syncs a file.

Another process is handed each such call below a directory before it is carried out, and lets it go
on or does not. So the call that is held has not begun; what other threads have called before may
still be under way. What is written through a mapping of a file is no call.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from lab.faults import seccomp
from lab.measure.program import gist
from lab.writers.menu import ROOT

INT_MASK = (1 << 32) - 1
HERE = INT_MASK & -100  # AT_FDCWD
MAKES_OR_EMPTIES = os.O_CREAT | os.O_TRUNC
NAME_BYTES_MAX = 4096
ADDRESS_MAX = (1 << 63) - 1
HELD = "held"
CLOSED, BEGIN, END, HEARD = b"c", b"b", b"e", b"h"
DONE = "the end"  # in place of a call: all are done, and whoever made them does not know it yet
PROBE_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Name:
    """Of a file: the number of the argument, and of the one that says what it is relative to."""

    at: int
    below: int | None = None


@dataclass(frozen=True)
class Arguments:
    """Which of a call's say what it changes: an open file, or a name, or two."""

    file: int | None = None
    names: tuple[Name, ...] = ()
    flags: int | None = None  # of an open; without one of two flags it changes nothing
    how: int | None = None  # where in memory those are
    count: int | None = None  # of what is submitted, whatever file that is for


CALLS = {
    "open": Arguments(names=(Name(0),), flags=1),
    "openat": Arguments(names=(Name(1, 0),), flags=2),
    "openat2": Arguments(names=(Name(1, 0),), how=2),
    "creat": Arguments(names=(Name(0),)),
    "mkdir": Arguments(names=(Name(0),)),
    "mkdirat": Arguments(names=(Name(1, 0),)),
    "rename": Arguments(names=(Name(0), Name(1))),
    "renameat": Arguments(names=(Name(1, 0), Name(3, 2))),
    "renameat2": Arguments(names=(Name(1, 0), Name(3, 2))),
    "unlink": Arguments(names=(Name(0),)),
    "unlinkat": Arguments(names=(Name(1, 0),)),
    "rmdir": Arguments(names=(Name(0),)),
    "link": Arguments(names=(Name(1),)),
    "linkat": Arguments(names=(Name(3, 2),)),
    "symlink": Arguments(names=(Name(1),)),
    "symlinkat": Arguments(names=(Name(2, 1),)),
    "truncate": Arguments(names=(Name(0),)),
    "ftruncate": Arguments(file=0),
    "fallocate": Arguments(file=0),
    "write": Arguments(file=0),
    "writev": Arguments(file=0),
    "pwrite64": Arguments(file=0),
    "pwritev": Arguments(file=0),
    "pwritev2": Arguments(file=0),
    "sendfile": Arguments(file=0),
    "splice": Arguments(file=2),
    "copy_file_range": Arguments(file=2),
    "fsync": Arguments(file=0),
    "fdatasync": Arguments(file=0),
    "sync_file_range": Arguments(file=0),
    "syncfs": Arguments(file=0),
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
    """Of the other process. Counts; holds the call of number `hold_at`, and all that follow.

    What ends the counting is one more: there nothing is left to do but to say that it is done.
    """

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
                ready = dict(poll.poll())
                if ended in ready:
                    return False
                if self._requests in ready:
                    self._take_request(poll, ready[self._requests])
                elif not self._take_word(poll):
                    poll.unregister(self.from_gate)
        finally:
            os.close(ended)
        return True

    def close(self) -> None:
        """What is held then fails, so whoever is to die should have died before."""
        if self._requests >= 0:
            os.close(self._requests)

    def _take_request(self, poll: select.poll, events: int) -> None:
        if not events & select.POLLIN:  # nobody is left who could call
            poll.unregister(self._requests)
            return
        request = seccomp.receive(self._requests)
        if request is None:
            return
        what = self.changed_by(request) if self.counting else ""
        # Interrupted by a signal it comes anew, and this one's answer is refused. If the signal
        # and the answer meet, the kernel takes the answer as well: such a call counts twice.
        if not self._is_held(what) and seccomp.go_on(self._requests, request):
            self.counted += bool(what)

    def _is_held(self, what: str) -> bool:
        if what and self.counted + 1 == self.hold_at:
            self.held = what
        return bool(self.held)

    def changed_by(self, request: seccomp.Request) -> str:
        """The call and the file below the directory; empty where it changes none."""
        call = known()[request.number]
        if CALLS[call].count is not None:
            return call if request.arguments[CALLS[call].count] > 0 else ""
        try:
            for path in paths_of(CALLS[call], request):
                if path.is_relative_to(self.directory):
                    return f"{call} {path.relative_to(self.directory)}"
        except OSError:  # the caller has been killed, or is about to get an error
            pass
        return ""

    def _take_word(self, poll: select.poll) -> bool:
        """False where the process has closed its gate."""
        word, descriptors, _, _ = socket.recv_fds(self.from_gate, 1, 1)
        if not word:
            return False
        if word == CLOSED:
            (self._requests,) = descriptors
            poll.register(self._requests, select.POLLIN)
        self.counting = word == BEGIN
        if word == END and self._is_held(DONE):
            return True  # and is not told that it was heard
        self.counted += word == END
        self.from_gate.sendall(HEARD)
        return True


def paths_of(one: Arguments, request: seccomp.Request) -> Iterator[Path]:
    """What is changed. None where nothing is, as by an open that only reads."""
    values = request.arguments
    process = Path("/proc") / str(request.thread)
    if one.file is not None:
        yield (process / "fd" / str(values[one.file] & INT_MASK)).readlink()
    if one.flags is not None and not values[one.flags] & MAKES_OR_EMPTIES:
        return
    if one.how is not None and not flags_at(process, values[one.how]) & MAKES_OR_EMPTIES:
        return
    for name in one.names:
        below = HERE if name.below is None else values[name.below] & INT_MASK
        yield path_of(process, memory_text(process, values[name.at]), below)


def path_of(process: Path, name: str, below: int) -> Path:
    """Links on the way are followed, the last one is not: it is what is renamed or removed."""
    if not name.startswith("/"):
        start = process / ("cwd" if below == HERE else f"fd/{below}")
        name = f"{start.readlink()}/{name}"
    parent, _, last = name.rpartition("/")
    return Path(os.path.realpath(parent)) / last


def flags_at(process: Path, address: int) -> int:
    """Of a struct open_how."""
    return int.from_bytes(memory(process, address, 8), sys.byteorder)


def memory_text(process: Path, address: int) -> str:
    return os.fsdecode(memory(process, address, NAME_BYTES_MAX).partition(b"\0")[0])


def memory(process: Path, address: int, size: int) -> bytes:
    """Fewer bytes where what follows is not mapped. OSError where nothing is."""
    with (process / "mem").open("rb", buffering=0) as file:
        os.lseek(file.fileno(), min(address, ADDRESS_MAX), os.SEEK_SET)
        return file.read(size)


def missing() -> str:
    """Why no calls can be held here; empty where they can."""
    command = [sys.executable, "-m", __spec__.name]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False,
            timeout=PROBE_SECONDS_MAX,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"a call was not held within {PROBE_SECONDS_MAX:g} s"
    said = done.stdout.strip() or gist(done.stderr) or "a call was not held"
    return "" if said == HELD else said


def probe() -> str:
    """Of a process that this one forks a call is held; or why not."""
    with tempfile.TemporaryDirectory() as place:
        ours, theirs = socket.socketpair()
        process = os.fork()
        if process == 0:
            call_behind(Gate(theirs), Path(place))
        theirs.close()
        with ours, closing(Watch(process, Path(place).resolve(), 1, ours)) as watch:
            watch.run_until_held()
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    return HELD if watch.held else ""


def call_behind(gate: Gate, place: Path) -> None:
    try:
        gate.close()
        with gate.counting():
            (place / "new").mkdir()
    except seccomp.SeccompError as error:
        print(error, flush=True)
    finally:
        os._exit(0)


if __name__ == "__main__":
    print(probe(), end="")
