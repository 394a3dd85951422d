"""Memory in which tensors are put together from their boxes.

It is a mapped file without a name, on the disk that the checkpoint will be written to. Pages that
fit into memory are never written, others are; so no more memory is needed than the machine has.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from pathlib import Path

from deepfreeze.errors import make_error

_ALIGNMENT_BYTES = 64
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)


def aligned(size: int) -> int:
    """The room that `size` bytes take here."""
    return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


class Scratch:
    """Room for a number of bytes that is given at first."""

    def __init__(self, folder: Path, size: int) -> None:
        self._used = 0
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)  # a full disk would end us later
                self._map = mmap.mmap(file.fileno(), size)
        except OSError as cause:
            raise make_error(
                "no_space" if cause.errno in _FULL else "io",
                f"take {size} bytes of scratch space in {folder}: {cause.strerror or cause}",
            ) from cause

    def take(self, size: int) -> memoryview:
        """The next `size` bytes."""
        begin = self._used
        self._used += aligned(size)
        return memoryview(self._map)[begin : begin + size]
