"""The streams of a version: written into memory and committed when closed, read block by block."""

from __future__ import annotations

import io
import mmap
import os
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from deepfreeze import _core
from deepfreeze.base.raw_reader import RawReader
from deepfreeze.errors import CorruptError

_WRITE_BUFFER_BYTES = 1 << 20
_READ_BUFFER_BYTES = 1 << 15  # for the smallest reads, those of a zip archive's records
_WINDOW_BYTES = 16 << 20
_WINDOWS_MAX = 3  # an archive is read at its end, at its beginning, and then in order


class WriteStream(io.BufferedWriter):
    """Keeps the written bytes in memory; close() commits them, unless an error came before.

    DCP syncs the descriptor before it closes the stream. That does not make it durable: close()
    does, and returns once it is durable, or raises.
    """

    def __init__(self, name: str, commit: Callable[[torch.Tensor], None]) -> None:
        self._commit: Callable[[torch.Tensor], None] | None = commit
        super().__init__(io.FileIO(os.memfd_create(name), "r+b"), _WRITE_BUFFER_BYTES)

    def close(self) -> None:
        """Commits the bytes that were written."""
        if self.closed:
            return
        commit, self._commit = self._commit, None
        try:
            if commit is not None:
                self.flush()
                commit(self._content())
        finally:
            super().close()

    def discard(self) -> None:
        """Closes without a commit."""
        self._commit = None
        self.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        self.discard()  # the base class would call close(), which commits

    def _content(self) -> torch.Tensor:
        size = os.fstat(self.fileno()).st_size
        if not size:
            return torch.empty(0, dtype=torch.uint8, device="cpu")
        return torch.frombuffer(mmap.mmap(self.fileno(), size), dtype=torch.uint8)


class _Blocks(RawReader):
    """The bytes of a version, every block of which is verified when it is read.

    They are read in windows of 16 MiB, because each read from the device costs a millisecond.
    """

    def __init__(self, name: str, info: _core.CheckpointInfo) -> None:
        super().__init__()
        self._name = name
        self._checkpoint = _core.open_checkpoint(info)
        (self._spec,) = self._checkpoint.tensors()
        self._windows: OrderedDict[int, memoryview] = OrderedDict()  # by number; last used last

    @property
    def size(self) -> int:
        """The size of the stream in bytes."""
        return self._spec.shape[0]

    def _before_beginning(self, place: int) -> Exception:
        return ValueError(f"seek {self._name}: {place} is before its beginning")

    def readinto(self, into: Any, /) -> int:
        """Reads the next bytes of one window. CorruptError if a block does not verify."""
        target = memoryview(into).cast("B")
        number, begin = divmod(self._place, _WINDOW_BYTES)
        if self._place >= self.size or not target.nbytes:
            return 0
        found = self._window(number)[begin : begin + target.nbytes]
        target[: found.nbytes] = found
        self._place += found.nbytes
        return found.nbytes

    def _window(self, number: int) -> memoryview:
        found = self._windows.pop(number, None)
        if found is None:
            found = self._read(number * _WINDOW_BYTES)
            while len(self._windows) >= _WINDOWS_MAX:
                self._windows.popitem(last=False)
        self._windows[number] = found
        return found

    def _read(self, begin: int) -> memoryview:
        count = min(_WINDOW_BYTES, self.size - begin)
        data = torch.empty(count, dtype=torch.uint8, device="cpu")
        target = _core.Target(self._spec.key, data.data_ptr(), count, ((begin,), (count,)))
        try:
            self._checkpoint.read([target], True)
        except CorruptError as cause:
            raise CorruptError(f"read {self._name}: {cause}{_WAY_OUT}") from cause
        return data.numpy().data


_WAY_OUT = (
    "; with FSSPEC_DEEPFREEZE_VERIFY=blocks in the environment a load reads all once before, and "
    "takes the version before if something is damaged"
)


def open_version(name: str, info: _core.CheckpointInfo) -> io.BufferedReader:
    """A seekable stream of a version. CheckpointError if it was removed or its index is damaged."""
    return io.BufferedReader(_Blocks(name, info), _READ_BUFFER_BYTES)


def size_of_version(info: _core.CheckpointInfo) -> int:
    """The size of a version in bytes. CheckpointError as in open_version()."""
    (spec,) = _core.open_checkpoint(info).tensors()
    return spec.shape[0]
