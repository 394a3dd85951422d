"""Reads a data file by the public safetensors rules alone, as an independent witness."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

BLOCK_BYTES = 64 * 1024  # docs/format.md: the unit of checksums


@dataclass(frozen=True)
class StoredFile:
    """The end of the header, and the place of each tensor in the data section."""

    path: Path
    header_bytes: int
    data_bytes: int
    extents: dict[str, tuple[int, int]]

    def tensors_in_block(self, block: int) -> set[str]:
        begin, end = block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES
        return {key for key, (first, last) in self.extents.items() if first < end and begin < last}


def read_stored_file(path: Path) -> StoredFile:
    data = path.read_bytes()
    header_bytes = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:header_bytes])
    header.pop("__metadata__")
    extents = {key: tuple(entry["data_offsets"]) for key, entry in header.items()}
    return StoredFile(path, header_bytes, len(data) - header_bytes, extents)
