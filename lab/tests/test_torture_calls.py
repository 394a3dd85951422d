"""Calls that change files are counted, no others, and what is held has changed nothing."""

import ctypes.util
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from lab.faults import calls, seccomp
from lab.faults.calls import Gate, Watch
from lab.faults.seccomp import SeccompError
from lab.writers.menu import ROOT

Act = Callable[[Path], object]


@contextmanager
def gated(act: Callable[[Gate], None], place: Path, hold_at: int = 0) -> Iterator[Watch]:
    """A forked process that does it; killed at the end."""
    ours, theirs = socket.socketpair()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            gate = Gate(theirs)
            gate.close()
            act(gate)
            status = 0
        finally:
            os._exit(status)
    theirs.close()
    with ours, closing(Watch(process, place.resolve(), hold_at, ours)) as watch:
        try:
            yield watch
        finally:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


@contextmanager
def watched(act: Act, place: Path, hold_at: int = 0, counting: bool = True) -> Iterator[Watch]:
    def behind(gate: Gate) -> None:
        with gate.counting() if counting else nullcontext():
            act(place)

    with gated(behind, place, hold_at) as watch:
        yield watch


def count(act: Act, place: Path, counting: bool = True) -> int:
    with watched(act, place, counting=counting) as watch:
        assert not watch.run_until_held()
        ended = os.waitid(os.P_PID, watch.process, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        assert ended.si_status == 0
    return watch.counted


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """With a file, a folder, and something beside it that is not watched."""
    made = tmp_path / "run"
    (made / "folder").mkdir(parents=True)
    (made / "file").write_bytes(b"older")
    (tmp_path / "elsewhere").write_bytes(b"older")
    return made


def opened(place: Path, name: str = "file") -> int:
    return os.open(place / name, os.O_RDWR)


def folder(place: Path) -> int:
    return os.open(place, os.O_RDONLY)


def raw(call: str, *arguments: Any) -> None:
    """What Python has no function for."""
    (number,) = seccomp.numbers([call])
    ctypes.CDLL(None).syscall(ctypes.c_long(number), *arguments)


def open_how(flags: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(
        struct.pack("=3Q", flags, 0o600 if flags & os.O_CREAT else 0, 0)
    )


def vector(text: bytes) -> ctypes.Array[ctypes.c_char]:
    """A struct iovec; `text` must be kept."""
    address = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value
    return ctypes.create_string_buffer(struct.pack("=2Q", address, len(text)))


NEWER = b"newer"
ACTS: dict[str, Act] = {
    "open new": lambda at: raw("open", bytes(at / "new"), os.O_CREAT, 0o600),
    "openat file": lambda at: os.open(at / "file", os.O_WRONLY | os.O_TRUNC),
    "openat new": lambda at: os.open(at / "new", os.O_WRONLY | os.O_CREAT, 0o600),
    "openat2 new": lambda at: raw(
        "openat2", folder(at), b"new", open_how(os.O_RDWR | os.O_CREAT), 24
    ),
    "creat new": lambda at: raw("creat", bytes(at / "new"), 0o600),
    "mkdir new": lambda at: (at / "new").mkdir(),
    "mkdirat new": lambda at: os.mkdir("new", dir_fd=folder(at)),
    "rename file": lambda at: (at / "file").rename(at / "new"),
    "rename new": lambda at: (at.parent / "elsewhere").rename(at / "new"),
    "renameat file": lambda at: os.rename(
        "file", "new", src_dir_fd=folder(at), dst_dir_fd=folder(at)
    ),
    "renameat2 file": lambda at: raw("renameat2", folder(at), b"file", folder(at), b"new", 1),
    "unlink file": lambda at: (at / "file").unlink(),
    "unlinkat folder": lambda at: os.rmdir("folder", dir_fd=folder(at)),
    "rmdir folder": lambda at: (at / "folder").rmdir(),
    "link new": lambda at: raw("link", bytes(at / "file"), bytes(at / "new")),
    "linkat new": lambda at: os.link("file", "new", src_dir_fd=folder(at), dst_dir_fd=folder(at)),
    "symlink new": lambda at: (at / "new").symlink_to("file"),
    "symlinkat new": lambda at: os.symlink("file", "new", dir_fd=folder(at)),
    "truncate file": lambda at: os.truncate(at / "file", 1),
    "ftruncate file": lambda at: os.ftruncate(opened(at), 1),
    "fallocate file": lambda at: os.posix_fallocate(opened(at), 0, 8192),
    "write file": lambda at: os.write(opened(at), NEWER),
    "writev file": lambda at: os.writev(opened(at), [b"new", b"er"]),
    "pwrite64 file": lambda at: os.pwrite(opened(at), NEWER, 1),
    "pwritev file": lambda at: raw("pwritev", opened(at), vector(NEWER), 1, 0, 0),
    "pwritev2 file": lambda at: os.pwritev(opened(at), [NEWER], 1, os.RWF_DSYNC),
    "sendfile file": lambda at: os.sendfile(opened(at), opened(at.parent, "elsewhere"), 0, 5),
    "copy_file_range file": lambda at: os.copy_file_range(
        opened(at.parent, "elsewhere"), opened(at), 5
    ),
    "splice file": lambda at: os.splice(filled_pipe(), opened(at), 5),
    "fsync file": lambda at: os.fsync(opened(at)),
    "fdatasync file": lambda at: os.fdatasync(opened(at)),
    "sync_file_range file": lambda at: raw("sync_file_range", opened(at), 0, 0, 0),
    "syncfs file": lambda at: raw("syncfs", opened(at)),
    "io_uring_enter": lambda _: raw("io_uring_enter", -1, 1, 0, 0, None, 0),
}


def filled_pipe() -> int:
    reading, writing = os.pipe()
    os.write(writing, NEWER)
    return reading


def test_every_call_that_is_known_is_tried() -> None:
    assert {what.partition(" ")[0] for what in ACTS} == set(calls.CALLS)


@pytest.mark.parametrize("what", ACTS)
def test_each_call_is_held_before_it_has_changed_anything(what: str, place: Path) -> None:
    if what.partition(" ")[0] not in calls.known().values():
        pytest.skip("this architecture has no such call")
    with watched(ACTS[what], place, hold_at=1) as watch:
        assert watch.run_until_held()
        assert watch.held == what
        assert sorted(path.name for path in place.iterdir()) == ["file", "folder"]
        assert (place / "file").read_bytes() == b"older"
    assert count(ACTS[what], place) == 2, "that call, and the end"


def look(at: Path) -> None:
    (at / "file").read_bytes()
    list(at.iterdir())
    reading, writing = os.pipe()
    os.write(writing, b"x")
    os.read(reading, 1)
    raw("openat2", folder(at), b"file", open_how(os.O_RDONLY), 24)
    raw("io_uring_enter", -1, 0, 0, 0, None, 0)
    (at.parent / "elsewhere").write_bytes(NEWER)


def test_what_changes_no_file_there_is_not_counted(place: Path) -> None:
    assert count(look, place) == 1, "the end"
    assert (place.parent / "elsewhere").read_bytes() == b"newer", "and was carried out"


def test_only_what_is_asked_for_is_counted(place: Path) -> None:
    assert count(ACTS["write file"], place, counting=False) == 0
    assert (place / "file").read_bytes() == NEWER

    def three(gate: Gate) -> None:
        ACTS["write file"](place)
        with gate.counting():
            ACTS["fsync file"](place)
        ACTS["write file"](place)

    with gated(three, place) as watch:
        assert not watch.run_until_held()
    assert watch.counted == 2, "the second, and the end"


def test_the_end_is_held_before_it_is_known(place: Path) -> None:
    with watched(ACTS["rename file"], place, hold_at=2) as watch:
        assert watch.run_until_held()
        assert watch.held == calls.DONE
        assert (place / "new").exists()
        time.sleep(0.01)
        assert os.waitid(os.P_PID, watch.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def broken(at: Path) -> None:
    (at / "loop").symlink_to("loop")
    with suppress(OSError):
        (at / "loop" / "a").mkdir()
    for address in (1, 1 << 63, (1 << 64) - 1):
        raw("mkdirat", -100, ctypes.c_uint64(address), 0)
    raw("mkdirat", -1, bytes(at / "made"), 0o700)


def test_calls_that_fail_end_nothing(place: Path) -> None:
    assert count(broken, place) == 1 + 1 + 1 + 1, "link, below it, made, end"
    assert (place / "made").is_dir(), "an absolute name is relative to nothing"


def handles_signals(at: Path) -> None:
    signal.signal(signal.SIGUSR1, lambda *_: None)
    file = opened(at)
    for _ in range(300):
        os.pwrite(file, NEWER, 0)


def interrupted(request: seccomp.Request, requests: int) -> seccomp.Request:
    """After its caller has left it because of a signal, so that an answer comes too late."""
    os.kill(request.thread, signal.SIGUSR1)
    deadline = time.monotonic() + 30
    while seccomp.library().seccomp_notify_id_valid(requests, ctypes.c_uint64(request.id)) == 0:
        assert time.monotonic() < deadline, "the caller still waits"
    return request


def test_a_call_that_a_signal_interrupts_counts_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received = 0
    receive = seccomp.receive

    def every_other_too_late(requests: int) -> seccomp.Request | None:
        nonlocal received
        request = receive(requests)
        if request is None or "pwrite64" not in calls.known()[request.number]:
            return request
        received += 1
        return interrupted(request, requests) if received % 2 else request

    monkeypatch.setattr(seccomp, "receive", every_other_too_late)
    assert count(handles_signals, place) == 300 + 1
    assert received == 2 * 300, "each came anew"


def by_name(at: Path) -> None:
    os.chdir(at)
    Path("folder/../a").mkdir()
    (at / "b").symlink_to(at.parent)
    (at / "b" / "c").mkdir()  # outside
    (at.parent / "d").symlink_to(at)
    (at.parent / "d" / "e").mkdir()  # inside


def test_names_are_taken_for_what_they_lead_to(place: Path) -> None:
    assert count(by_name, place) == 3 + 1


def all_together(at: Path) -> None:
    threads = [
        threading.Thread(target=(at / str(index)).write_bytes, args=(b"newer",))
        for index in range(4)
    ]
    for thread in threads:
        thread.start()
    if (process := os.fork()) == 0:
        (at / "of a child").write_bytes(b"newer")
        os._exit(0)
    os.waitpid(process, 0)
    for thread in threads:
        thread.join()


def test_threads_and_children_are_watched_and_all_are_held(place: Path) -> None:
    (place / "file").unlink()
    (place / "folder").rmdir()
    assert count(all_together, place) == 5 * 2 + 1, "made, written; the end"
    for path in place.iterdir():
        path.unlink()
    for held in range(1, 5):
        with watched(all_together, place, hold_at=held) as watch:
            assert watch.run_until_held()
            made = list(place.iterdir())
            written = [path for path in made if path.read_bytes()]
            # Of those before it, what other threads have called may not be carried out yet.
            assert len(made) + len(written) < held
        for path in place.iterdir():  # only now, for such a call may have made a file since
            path.unlink()


def test_a_machine_without_the_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls.missing() == ""
    seccomp.library.cache_clear()
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: None)
    with pytest.raises(SeccompError, match="libseccomp is not installed"):
        seccomp.hand_over([])
    monkeypatch.undo()
    assert seccomp.library()


def asked_where(lacking: str) -> str:
    """In a process that has lost something."""
    words = f"{lacking}; from lab.faults import calls, seccomp; print(calls.probe(), end='')"
    command = [sys.executable, "-c", words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def test_what_a_machine_lacks_is_found_by_holding_a_call() -> None:
    assert asked_where("pass") == calls.HELD
    nothing = "import ctypes.util; ctypes.util.find_library = lambda _: None"
    assert asked_where(nothing) == "libseccomp is not installed\n"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("print('no such thing')", "no such thing"),
        ("raise SystemExit('refused')", "refused"),
        ("pass", "a call was not held"),
        ("import time; time.sleep(9)", "a call was not held within 0.2 s"),
    ],
)
def test_why_no_call_can_be_held_is_told(
    command: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = subprocess.run

    def instead(_: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return run([sys.executable, "-c", command], **options)

    monkeypatch.setattr(subprocess, "run", instead)
    monkeypatch.setattr(calls, "PROBE_SECONDS_MAX", 10 if "sleep" not in command else 0.2)
    assert calls.missing() == reason


def test_a_machine_that_refuses_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp.library(), "seccomp_load", lambda _: -1)
    with pytest.raises(SeccompError, match="seccomp: load: Operation not permitted"):
        seccomp.hand_over([])
