"""Files of a source, mapped read-only, and the errors for bad ones."""

from __future__ import annotations

import errno
import io
import mmap
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepfreeze.base.raw_reader import RawReader
from deepfreeze.errors import CheckpointError, make_error

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NAMES_SHOWN_MAX = 5

# Called with the number of bytes that were read since the last call.
Done = Callable[[int], None]


def fault(path: Path, place: str, cause: object, code: str = "corrupt") -> CheckpointError:
    """The error for a source that can't be imported; `place` in the file may be empty."""
    where = f"{path} {place}" if place else str(path)
    return make_error(code, f"read {where}: {cause}")


def first_few(names: Sequence[str]) -> str:
    """The number of the names, and the first few of them."""
    shown = ", ".join(names[:_NAMES_SHOWN_MAX])
    return f"{len(names)} ({shown}{', …' if len(names) > _NAMES_SHOWN_MAX else ''})"


def os_fault(path: Path, cause: OSError) -> CheckpointError:
    """The error for a file that the system can't open or read."""
    code = "not_found" if cause.errno in (errno.ENOENT, errno.ENOTDIR) else "io"
    return fault(path, "", cause.strerror or cause, code)


class SourceFile:
    """One file. Its memory stays mapped as long as this, or an array of it, is kept.

    A file that is cut while it is mapped ends the process with SIGBUS: nothing was committed then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait
                raise fault(path, "", "it is no regular file", "unsupported")
            with path.open("rb") as file:
                self._identity = _identity(os.fstat(file.fileno()))
                self.bytes = os.fstat(file.fileno()).st_size
                self._map: Any = b""
                if self.bytes:  # an empty file can't be mapped
                    self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    self._map.madvise(mmap.MADV_SEQUENTIAL)
        except OSError as cause:
            raise os_fault(path, cause) from cause

    @property
    def memory(self) -> memoryview:
        """All its bytes."""
        return memoryview(self._map)

    def array(self, begin: int, size: int) -> NDArray[np.uint8]:
        """`size` of its bytes, which must be there."""
        import numpy as np

        return np.frombuffer(self._map, dtype=np.uint8, count=size, offset=begin)

    def check_unchanged(self) -> None:
        """CheckpointError if the path is another file now, or its content was written since."""
        try:
            now = _identity(self.path.stat())
        except OSError as cause:
            raise os_fault(self.path, cause) from cause
        if now != self._identity:
            raise fault(self.path, "", "it changed while it was imported", "torn_capture")


def _identity(found: os.stat_result) -> tuple[int, ...]:
    # The time of the last change of any kind counts too: the other one can be set back.
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def stream_of(memory: memoryview) -> io.BufferedReader:
    """The bytes as a stream, without copying them all."""
    return io.BufferedReader(_Window(memory))


class _Window(RawReader):
    def __init__(self, memory: memoryview) -> None:
        super().__init__()
        self._memory = memory

    @property
    def size(self) -> int:
        return len(self._memory)

    def _before_beginning(self, place: int) -> Exception:
        return OSError(errno.EINVAL, "a place before the beginning")

    def readinto(self, buffer: Any) -> int:
        into = memoryview(buffer).cast("B")
        found = self._memory[self._place : self._place + len(into)]
        into[: len(found)] = found
        self._place += len(found)
        return len(found)
