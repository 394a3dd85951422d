"""The streams that DCP's .metadata names, and their sizes. Reads it without running any code."""

from __future__ import annotations

from pathlib import Path

from deepfreeze.importing.dcp_pickle import is_a, read_pickle
from deepfreeze.importing.source_files import fault


def streams_in(data: bytes, path: Path) -> dict[str, int]:
    """The least number of bytes in each stream, by name. CorruptError if `data` is no metadata.

    `path` is for messages.
    """
    root = read_pickle(data, path)
    storage = root.member("storage_data") if is_a(root, "Metadata") else None
    if not isinstance(storage, dict):
        raise fault(path, "", "it holds no Metadata with storage_data")
    ends: dict[str, int] = {}
    for info in storage.values():
        members = (
            [info.member(name) for name in ("relative_path", "offset", "length")]
            if is_a(info, "_StorageInfo")
            else []
        )
        if [type(member) for member in members] != [str, int, int]:
            raise fault(path, "", "the place of an item is no name, offset and length")
        name, offset, length = members
        if name != Path(name).name or name in ("", ".."):
            raise fault(path, "", f"it names {name!r}, which is no stream beside it")
        ends[name] = max(ends.get(name, 0), offset + length)
    return ends
