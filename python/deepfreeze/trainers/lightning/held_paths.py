"""Makes a checkpoint's path exist while its save is in flight."""

from __future__ import annotations

import fcntl
import os
import resource
import secrets
from pathlib import Path

_DESCRIPTORS_MAX = 1 << 16  # a larger one would cost memory


class HeldPaths:
    """ModelCheckpoint asks the file system which names are taken, before a save is durable.

    A held path is a link to an open file of this process, so the link is dangling once the process
    has ended, in whatever way. A link to the process alone would not do: in a container the next
    process may have its id.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def hold(self, place: Path) -> None:
        """Holds a path that does not exist, until let_go() or until a file takes its place."""
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)  # left by a process that has ended
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
    """The descriptor, moved to a number that another process with this id is unlikely to use."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    ends = _DESCRIPTORS_MAX if limit == resource.RLIM_INFINITY else min(limit, _DESCRIPTORS_MAX)
    begins = ends // 4
    try:
        number = begins + secrets.randbelow(ends // 2)
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, number)
    finally:
        os.close(descriptor)
