"""Paths that exist while what they are to lead to is in flight."""

from __future__ import annotations

import fcntl
import os
import resource
import secrets
from pathlib import Path

_DESCRIPTORS_MAX = 1 << 16  # a larger one would cost memory


class HeldPaths:
    """ModelCheckpoint asks the file system which names are taken, before a save is durable.

    A path that is held is a link to an open file of this process, so that it exists no more once
    the process has ended, however it did. Not a link to the process alone: in a container the
    next one may have its id.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def hold(self, place: Path) -> None:
        """If nothing is there. Done by let_go(), or by what takes the path's place."""
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)  # of a process that has ended
            place.symlink_to(self._target())

    def let_go(self, place: Path) -> None:
        """Removes it, if it is still held by this object."""
        if is_held(place) and os.readlink(place) == self._target():
            place.unlink()

    def close(self) -> None:
        """After the last let_go()."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _target(self) -> str:
        if self._descriptor is None:
            self._descriptor = _anywhere(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"


def is_held(place: Path) -> bool:
    """Whether a save to it is in flight, or its process ended before that was durable."""
    return place.is_symlink() and os.readlink(place).startswith("/proc/")


def _anywhere(descriptor: int) -> int:
    """Moved to a number that another process of this id hardly has."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    ends = _DESCRIPTORS_MAX if limit == resource.RLIM_INFINITY else min(limit, _DESCRIPTORS_MAX)
    begins = ends // 4
    try:
        number = begins + secrets.randbelow(ends // 2)
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, number)
    finally:
        os.close(descriptor)
