"""ext4 on a block device that a process of ours serves, and so can fail, stall, be slow or lie.

nbdkit serves an image, nbdfuse shows it as a file, a loop device makes a disk of it. In a mount
namespace of this process and its children.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.faults.disk import MissingError, keep_mounts_to_ourselves

DISK_BYTES = 192 << 20
JOURNAL_BYTES = 8 << 20
BLOCK_BYTES = 4096
LOOP_DEVICES = 2  # that one disk takes: itself, and its journal
_READY_SECONDS = 10.0
PROGRAMS = ("nbdkit", "nbdfuse", "losetup", "mkfs.ext4", "mke2fs", "e2fsck", "mount", "umount")
DEVICES = (Path("/dev/fuse"), Path("/dev/loop-control"))
FILTERS = ("error", "rate")  # filters of nbdkit; some systems package them separately


class NotHereError(Exception):
    """This machine lacks something, or does not permit it."""


class DamagedError(Exception):
    """The file system can't be repaired or mounted."""


def _run(*command: str | Path, accept: Sequence[int] = (0,)) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode not in accept:
        raise OSError(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def _wait_until(ready: Callable[[], bool], gave_up: Callable[[], str]) -> None:
    """OSError after some seconds, or as soon as `gave_up` has something to say."""
    until = time.monotonic() + _READY_SECONDS
    while not ready():
        if said := gave_up():
            raise OSError(said)
        if time.monotonic() > until:
            raise OSError(f"not ready after {_READY_SECONDS:.0f} s")
        time.sleep(0.01)


def missing() -> str:
    """The programs that this machine lacks for such a disk; empty if it has all."""
    if lacking := [each for each in PROGRAMS if shutil.which(each) is None]:
        return f"not installed: {', '.join(lacking)}"
    if os.geteuid() != 0:
        return "it takes root"
    if lacking := [str(each) for each in DEVICES if not os.access(each, os.R_OK | os.W_OK)]:
        return f"no access to {', '.join(lacking)}"
    try:
        _run("nbdkit", "--dump-plugin", *(f"--filter={each}" for each in FILTERS), "file")
        _try_loop_devices()
    except OSError as cause:
        return str(cause)
    return ""


def _try_loop_devices() -> None:
    """A container may have /dev/loop-control and yet no device, or not as many as a disk takes."""
    with tempfile.NamedTemporaryFile() as file, contextlib.ExitStack() as attached:
        file.truncate(BLOCK_BYTES)
        for _ in range(LOOP_DEVICES):
            loop = _run("losetup", "--find", "--show", file.name)
            attached.callback(_run, "losetup", "--detach", loop)


def have_mounts_of_our_own() -> None:
    """Called once in a process. NotHereError if it is not permitted."""
    try:
        keep_mounts_to_ourselves()
    except (MissingError, OSError) as cause:
        raise NotHereError(str(cause)) from cause


class BlockDisk:
    """Attached and mounted within `with`. Filters and parameters are nbdkit's."""

    def __init__(self, place: Path) -> None:
        self.path = place / "mounted"
        self.trigger = place / "trigger"  # while it exists, the error filter fails requests
        self._image = place / "image"
        self._shown = place / "shown"
        self._socket = place / "socket"
        self._listens = place / "listens"  # nbdkit's: the socket is there before that
        self._errors = place / "errors"  # with the program's name behind it
        self._journal = place / "journal"
        self._journal_device = ""  # if the journal has a device of its own
        self._processes: list[subprocess.Popen[bytes]] = []
        self.device = ""  # while it is attached
        self.path.mkdir()
        self._shown.touch()
        with self._image.open("wb") as file:
            file.truncate(DISK_BYTES)
        _run("mkfs.ext4", "-q", self._image)

    def have_a_journal_that_never_fails(self) -> None:
        """On a disk of its own; before the first attach(). Else the first write to fail is the
        journal's, as a rule, and ext4 writes nothing any more."""
        with self._journal.open("wb") as file:
            file.truncate(JOURNAL_BYTES)
        self._journal_device = _run("losetup", "--find", "--show", self._journal)
        block = ("-b", str(BLOCK_BYTES))
        _run("mke2fs", "-q", "-F", *block, "-O", "journal_dev", self._journal_device)
        _run("mkfs.ext4", "-q", "-F", *block, "-J", f"device={self._journal_device}", self._image)

    def attach(self, filters: Sequence[str] = (), parameters: Sequence[str] = ()) -> None:
        """Repairs the file system as a start of the machine would, and mounts it."""
        self.attach_unmounted(filters, parameters)
        journal = self._journal_device
        check = ("e2fsck", "-fy", *(("-j", journal) if journal else ()))
        mount = ("mount", *(("-o", f"journal_path={journal}") if journal else ()))
        try:
            _run(*check, self.device, accept=(0, 1, 2, 3))
            _run(*mount, self.device, self.path)
        except OSError as cause:
            raise DamagedError(str(cause)) from cause

    def attach_unmounted(self, filters: Sequence[str], parameters: Sequence[str]) -> None:
        """The device alone."""
        self._socket.unlink(missing_ok=True)
        self._listens.unlink(missing_ok=True)
        server: list[str | Path] = [
            "nbdkit",
            "-f",
            "--exit-with-parent",
            "-U",
            self._socket,
            "-P",
            self._listens,
        ]
        server += [f"--filter={each}" for each in filters]
        self._start([*server, "file", self._image, *parameters], self._listens.exists)
        show: list[str | Path] = ["nbdfuse", self._shown, f"nbd+unix:///?socket={self._socket}"]
        self._start(show, lambda: self._shown.stat().st_size > 0)
        # Through the page cache, the loop device calls a write done of which only a part was.
        self.device = _run("losetup", "--find", "--show", "--direct-io=on", self._shown)

    def _start(self, command: Sequence[str | Path], ready: Callable[[], bool]) -> None:
        said = self._errors.with_suffix(f".{command[0]}")
        with said.open("wb") as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
            )
        self._processes.append(process)

        def gave_up() -> str:
            if process.poll() is None:
                return ""
            return f"it ended with {process.returncode}: {said.read_text().strip()}"

        try:
            _wait_until(ready, gave_up)
        except OSError as cause:
            raise OSError(f"{command[0]}: {cause}") from cause

    def sector_bytes(self) -> int:
        """The least that can be written."""
        name = Path(self.device).name
        return int(Path(f"/sys/block/{name}/queue/logical_block_size").read_text())

    def stall(self) -> None:
        """No request ends until go_on()."""
        self._processes[0].send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._processes[0].send_signal(signal.SIGCONT)

    def content(self) -> bytes:
        """The content of the device; only while it is detached."""
        return self._image.read_bytes()

    def content_at(self, offset: int, nbytes: int) -> bytes:
        """A part of the content, at any time; without data that a cache holds back."""
        with self._image.open("rb") as file:
            file.seek(offset)
            return file.read(nbytes)

    def lose_some_since(self, before: bytes, draw: random.Random) -> int:
        """Puts some blocks back as they were, as if they had never been written; how many."""
        share = draw.choice((0.01, 0.1, 0.5, 0.9))
        lost = 0
        with self._image.open("r+b") as file:
            for place in range(0, DISK_BYTES, BLOCK_BYTES):
                was = before[place : place + BLOCK_BYTES]
                file.seek(place)
                if file.read(BLOCK_BYTES) != was and draw.random() < share:
                    file.seek(place)
                    file.write(was)
                    lost += 1
        return lost

    def cut_power(self) -> None:
        """Data that the device has not written is lost; nobody may use the disk any more."""
        self._processes[0].kill()
        self.detach()

    def detach(self) -> None:
        """Nobody may use it any more. All of it is tried, whatever fails."""
        self.trigger.unlink(missing_ok=True)
        if self._processes:
            self.go_on()
        try:
            _wait_until(self._is_unmounted, lambda: "")
        except OSError as cause:
            raise OSError(f"{self.path} can't be unmounted: {cause}") from cause
        finally:
            try:
                if self.device:
                    _run("losetup", "--detach", self.device)
            finally:
                self.device = ""
                self._end_processes()

    def _end_processes(self) -> None:
        for each in reversed(self._processes):
            each.kill()
            each.wait()
        self._processes.clear()
        subprocess.run(["umount", "--lazy", self._shown], capture_output=True, check=False)

    def _is_unmounted(self) -> bool:
        subprocess.run(["umount", self.path], capture_output=True, check=False)
        return not os.path.ismount(self.path)

    def __enter__(self) -> BlockDisk:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.detach()
        finally:
            if self._journal_device:
                _run("losetup", "--detach", self._journal_device)
