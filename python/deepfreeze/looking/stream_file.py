"""A version of a stream as a file of a DCP directory, in the memory of the run's own file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from deepfreeze import _core
from deepfreeze.importing.source_files import SourceFile, fault

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LENGTH_BYTES = 8  # of a safetensors header's length


class StreamFile(SourceFile):
    """The stream's bytes are the one tensor of that version, which the caller has verified."""

    def __init__(self, info: _core.CheckpointInfo) -> None:
        (path,) = Path(info.path).glob("*.safetensors")
        super().__init__(path)
        whole = super().memory
        length = int.from_bytes(whole[:_LENGTH_BYTES], "little")
        header = json.loads(bytes(whole[_LENGTH_BYTES : _LENGTH_BYTES + length]))
        (entry,) = (value for name, value in header.items() if name != "__metadata__")
        begin, end = entry["data_offsets"]
        self._begin = _LENGTH_BYTES + length + begin
        self.bytes = end - begin
        if self._begin + self.bytes > len(whole):
            raise fault(path, "", "it is cut")

    @property
    def memory(self) -> memoryview:
        """The stream's bytes."""
        return super().memory[self._begin : self._begin + self.bytes]

    def array(self, begin: int, size: int) -> NDArray[np.uint8]:
        """`size` of the stream's bytes, which must exist."""
        return super().array(self._begin + begin, size)
