"""Calls that change files are counted, no others, and what is held has changed nothing."""

from __future__ import annotations

import ctypes.util
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import pytest

from bench.storage.menu import ROOT
from bench.torture import calls, seccomp
from bench.torture.calls import Gate, Watch
from bench.torture.seccomp import SeccompError

Act = Callable[[Path], object]


@contextmanager
def watched(act: Act, place: Path, hold_at: int = 0, counting: bool = True) -> Iterator[Watch]:
    """A forked process that does it; killed at the end."""
    ours, theirs = socket.socketpair()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            gate = Gate(theirs)
            gate.close()
            with gate.counting() if counting else nullcontext():
                act(place)
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


ACTS: dict[str, Act] = {
    "openat file": lambda at: os.open(at / "file", os.O_WRONLY | os.O_TRUNC),
    "openat new": lambda at: os.open(at / "new", os.O_WRONLY | os.O_CREAT, 0o600),
    "mkdir new": lambda at: (at / "new").mkdir(),
    "mkdirat new": lambda at: os.mkdir("new", dir_fd=os.open(at, os.O_RDONLY)),
    "rename file": lambda at: (at / "file").rename(at / "new"),
    "unlink file": lambda at: (at / "file").unlink(),
    "rmdir folder": lambda at: (at / "folder").rmdir(),
    "link new": lambda at: (at / "new").hardlink_to(at / "file"),
    "symlink new": lambda at: (at / "new").symlink_to("file"),
    "truncate file": lambda at: os.truncate(at / "file", 1),
    "ftruncate file": lambda at: os.ftruncate(opened(at), 1),
    "fallocate file": lambda at: os.posix_fallocate(opened(at), 0, 8192),
    "write file": lambda at: os.write(opened(at), b"newer"),
    "writev file": lambda at: os.writev(opened(at), [b"new", b"er"]),
    "pwrite64 file": lambda at: os.pwrite(opened(at), b"newer", 1),
    "pwritev2 file": lambda at: os.pwritev(opened(at), [b"newer"], 1, os.RWF_DSYNC),
    "sendfile file": lambda at: os.sendfile(opened(at), opened(at.parent, "elsewhere"), 0, 5),
    "copy_file_range file": lambda at: os.copy_file_range(
        opened(at.parent, "elsewhere"), opened(at), 5
    ),
}


@pytest.mark.parametrize("what", ACTS)
def test_each_call_is_held_before_it_has_changed_anything(what: str, place: Path) -> None:
    if what.partition(" ")[0] not in calls.known().values():
        pytest.skip("this architecture has no such call")
    with watched(ACTS[what], place, hold_at=1) as watch:
        assert watch.run_until_held()
        assert watch.held == what
        assert sorted(path.name for path in place.iterdir()) == ["file", "folder"]
        assert (place / "file").read_bytes() == b"older"


def look(at: Path) -> None:
    (at / "file").read_bytes()
    list(at.iterdir())
    reading, writing = os.pipe()
    os.write(writing, b"x")
    os.read(reading, 1)
    (at.parent / "elsewhere").write_bytes(b"newer")


def test_what_changes_no_file_there_is_not_counted(place: Path) -> None:
    assert count(look, place) == 0
    assert (place.parent / "elsewhere").read_bytes() == b"newer", "and was carried out"


def test_only_what_is_asked_for_is_counted(place: Path) -> None:
    assert count(ACTS["write file"], place, counting=False) == 0
    assert (place / "file").read_bytes() == b"newer"
    assert count(ACTS["write file"], place) == 1


def by_name(at: Path) -> None:
    os.chdir(at)
    Path("folder/../a").mkdir()
    (at / "b").symlink_to(at.parent)
    (at / "b" / "c").mkdir()  # outside
    (at.parent / "d").symlink_to(at)
    (at.parent / "d" / "e").mkdir()  # inside


def test_names_are_taken_for_what_they_lead_to(place: Path) -> None:
    assert count(by_name, place) == 3


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
    assert count(all_together, place) == 5 * 2, "made, written"
    for path in place.iterdir():
        path.unlink()
    for held in range(1, 5):
        with watched(all_together, place, hold_at=held) as watch:
            assert watch.run_until_held()
            made = list(place.iterdir())
            written = [path for path in made if path.read_bytes()]
            # Of those before it, what other threads have called may not be carried out yet.
            assert len(made) + len(written) < held
        for path in made:
            path.unlink()


def test_a_machine_without_the_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls.missing() == ""
    seccomp.library.cache_clear()
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: None)
    with pytest.raises(SeccompError, match="libseccomp is not installed"):
        seccomp.hand_over([])
    monkeypatch.undo()
    assert seccomp.library()


def test_what_a_machine_lacks_is_asked_in_another_process() -> None:
    lacking = "import ctypes.util; ctypes.util.find_library = lambda _: None; "
    command = [sys.executable, "-c", f"{lacking}from bench.torture import calls; calls.main()"]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert asked.stdout == "libseccomp is not installed\n"


def test_a_machine_that_refuses_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp.library(), "seccomp_load", lambda _: -1)
    with pytest.raises(SeccompError, match="seccomp: load: Operation not permitted"):
        seccomp.hand_over([])
