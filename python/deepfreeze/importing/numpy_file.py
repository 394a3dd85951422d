"""Files of numpy.savez, and so of Chainer's serializers."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from deepfreeze.importing.content import Content, Reading, content_of
from deepfreeze.importing.recognise import NPY_SUFFIX
from deepfreeze.importing.source_files import SourceFile, fault, stream_of


def read(path: Path, reading: Reading) -> Content:
    """The arrays by their names, in one dict. Reads them into memory and compares checksums."""
    file = SourceFile(path)
    state: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(stream_of(file.memory)) as archive:
            infos = archive.infolist()
            total = sum(info.file_size for info in infos)
            with reading.progress("read", total) as progress:
                for info in infos:
                    name = info.filename.removesuffix(NPY_SUFFIX)
                    if name in state:
                        raise fault(path, f"({name})", "it occurs twice")
                    state[name] = _array(archive, info, path)
                    progress.add(info.file_size)
    except (zipfile.BadZipFile, zlib.error, EOFError) as cause:
        raise fault(path, "", f"it is no whole zip archive ({cause})") from cause
    return content_of(state, path, [file], unpacked_bytes=total)


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> Any:
    with archive.open(info) as record:
        try:
            shape, in_fortrans_order, dtype = _header(record)
        except ValueError as cause:
            raise fault(path, f"({info.filename})", cause) from cause
        if dtype.hasobject:  # a pickle, which could run anything
            raise fault(path, f"({info.filename})", "it holds Python objects", "unsupported")
        data = record.read()
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise fault(path, f"({info.filename})", f"its size is not that of {dtype}{list(shape)}")
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if in_fortrans_order else "C")
    return array[()] if dtype.kind in "US" else array


def _header(record: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(record)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(record)
    return np.lib.format.read_array_header_2_0(record)
