"""A disk that others have filled, so that a save runs out of space in its middle."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.measure.files import files_in

FICLONE = 0x4004_9409  # _IOW(0x94, 9, int)
SHARE = 0.5  # of the bytes that are there already: what is left for the next save
STEP_BYTES = 16 << 10


@contextmanager
def crowded(directory: Path) -> Iterator[None]:
    """On XFS. Whoever overwrites a file in `directory` gets none of its space: others share it."""
    others = directory.parent / "others"
    others.mkdir()
    try:
        files = list(files_in(directory))
        for index, path in enumerate(files):
            clone(path, others / str(index))
        fill(others / "ballast", int(SHARE * sum(path.stat().st_size for path in files)))
        yield
    finally:
        shutil.rmtree(others)


def clone(path: Path, to: Path) -> None:
    """The same blocks under another name: a backup, a snapshot."""
    with path.open("rb") as source, to.open("wb") as target:
        fcntl.ioctl(target, FICLONE, source.fileno())


def fill(path: Path, left: int) -> None:
    """All but `left` bytes of the disk."""
    with path.open("wb") as file:
        size = max(0, free(path) - left)
        while size > 0 and free(path) > left:
            size = taken(file.fileno(), size)
        os.fsync(file.fileno())


def taken(file: int, size: int) -> int:
    """Takes `size` bytes at the end; returns how many to take next, fewer where there are none."""
    try:
        os.posix_fallocate(file, os.fstat(file).st_size, size)
    except OSError:
        return size // 2
    return STEP_BYTES


def free(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
