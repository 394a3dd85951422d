"""Files of checkpoints: synced, deleted, kept out of memory. Imports no framework."""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def agent_place(run: Path) -> Path:
    """For the agent of all runs beside that one, with a short name: sockets have 107 bytes."""
    name = hashlib.sha256(str(run.resolve().parent).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"df-agent-{name}"


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def files_in(path: Path) -> list[Path]:
    """The file itself, or every file below the directory."""
    if path.is_file():
        return [path]
    return sorted(one for one in path.rglob("*") if one.is_file() and not one.is_symlink())


def sync_all(path: Path) -> None:
    """Every file and directory below `path`, and the name of `path` itself."""
    for file in files_in(path):
        sync_file(file)
    for directory in sorted(one for one in path.rglob("*") if one.is_dir()):
        sync_directory(directory)
    if path.is_dir():
        sync_directory(path)
    sync_directory(path.parent)


def forget(path: Path) -> None:
    """Drops what memory holds of these files, so that the next read is the device's."""
    for file in files_in(path):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # a dirty page is not dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    with contextlib.suppress(OSError):  # root only
        DROP_CACHES.write_text("1")


def delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def scratch(parent: Path, prefix: str) -> Iterator[Path]:
    """A new directory that is removed at the end."""
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made)
