"""Machines for the ranks of a job: each a network, a mount and a host name of its own.

They are namespaces of processes that do nothing else. The bridge between them is in a network
namespace of this process. Nothing of it has a name outside, and all of it goes with the processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.ranks.job import Place

INTERFACE = "eth0"
APART = "apart0"  # has on each machine an address that no other one reaches
NEAR_BYTES_MAX = "64m"
KILL_SECONDS = 30.0
PROGRAMS = ("ip", "nsenter", "mount", "umount")

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWNET = 0x0002_0000, 0x0400_0000, 0x4000_0000
_ALL = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWNET
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class NotHereError(Exception):
    """This machine lacks something, or does not permit it."""


def _call(what: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


def have_a_switch() -> None:
    """Called once in a process, before it has machines.

    NotHereError: only if a program is missing, namespaces are not permitted, or the kernel has no
    bridges. Any other error is a failure.
    """
    if lacking := [each for each in PROGRAMS if shutil.which(each) is None]:
        raise NotHereError(f"not installed: {', '.join(lacking)}")
    try:
        _call("unshare", _libc.unshare(_CLONE_NEWNS | _CLONE_NEWNET))
    except PermissionError as cause:
        raise NotHereError(f"namespaces are not permitted: {cause}") from cause
    _run("mount", "--make-rprivate", "/")
    try:
        _run("ip", "link", "add", "switch", "type", "bridge")
    except OSError as cause:
        if "not supported" not in str(cause) and "Unknown device type" not in str(cause):
            raise
        raise NotHereError(f"this kernel has no bridges: {cause}") from cause
    _run("ip", "link", "set", "switch", "up")


class Machine:
    """It lasts until end(), or until this process ends."""

    def __init__(self, number: int, near: Path) -> None:
        """`near` is there already; on each machine it has a file system of its own."""
        self.host = f"node{number}"
        self.address = f"10.77.0.{number + 1}"
        self._near = near
        reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _hold(self.host, writer)
        os.close(writer)
        with open(reader, "rb") as started:
            if not started.read(1):
                raise OSError(f"{self.host} does not start")
        self._connect(f"10.77.{number + 1}.1")

    def _connect(self, apart: str) -> None:
        self._wire(INTERFACE, self.address, "port", ("master", "switch"))
        self._wire(APART, apart, "loose", ())
        self._do("ip", "link", "set", "lo", "up")
        self.have_near()

    def _wire(self, interface: str, address: str, end: str, to: Sequence[str]) -> None:
        end += self.host
        peer = ("peer", "name", interface, "netns", str(self._pid))
        _run("ip", "link", "add", end, "type", "veth", *peer)
        _run("ip", "link", "set", end, *to, "up")
        self._do("ip", "address", "add", f"{address}/24", "dev", interface)
        self._do("ip", "link", "set", interface, "up")

    def _do(self, *command: str | Path) -> None:
        _run("nsenter", "-t", str(self._pid), "--net", "--mount", "--uts", *command)

    interface = INTERFACE

    def place(self) -> Place:
        return Place(INTERFACE, self.address, self._enter)

    def know_hosts(self, hosts: Path) -> None:
        """A file of names and addresses, as /etc/hosts."""
        self._do("mount", "--bind", hosts, "/etc/hosts")

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """A program of this machine."""
        enter = ("nsenter", "-t", str(self._pid), "--net", "--mount", "--uts")
        return subprocess.Popen(
            [*enter, *command],
            preexec_fn=_end_with_parent,  # noqa: PLW1509  (this process has no threads)
            **options,
        )

    def kill_all(self) -> None:
        """Every process of this machine that popen() or its children have started.

        Returns when the last one has gone. OSError: one doesn't go.
        """
        until = time.monotonic() + KILL_SECONDS
        while alive := self._processes():
            if time.monotonic() > until:
                raise OSError(f"{self.host}: processes {alive} do not end")
            for process in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.02)

    def _processes(self) -> list[int]:
        own = os.readlink(f"/proc/{self._pid}/ns/net")
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if os.readlink(entry / "ns/net") == own and int(entry.name) != self._pid:
                    found.append(int(entry.name))
        return found

    def _enter(self) -> None:
        _end_with_parent()
        descriptor = os.pidfd_open(self._pid)
        _call("setns", _libc.setns(descriptor, _ALL))
        os.close(descriptor)

    def link(self, state: str) -> None:
        """To "down" or "up"."""
        self._do("ip", "link", "set", INTERFACE, state)

    def have_near(self) -> None:
        """An empty one."""
        self._do("mount", "-t", "tmpfs", "-o", f"size={NEAR_BYTES_MAX}", "near", self._near)

    def lose_near(self) -> None:
        """Its mount is forgotten; nobody may use it any more."""
        self._do("umount", self._near)

    def near_file(self, name: str) -> Path:
        """A path for this process."""
        return Path(f"/proc/{self._pid}/root{self._near}") / name

    def end(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _end_with_parent() -> None:
    _call("prctl", _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def _hold(host: str, writer: int) -> None:
    """Never returns."""
    try:
        _end_with_parent()
        _call("unshare", _libc.unshare(_ALL))
        socket.sethostname(host)
        os.write(writer, b"!")
        os.close(writer)
        while True:
            signal.pause()
    finally:
        os._exit(1)
