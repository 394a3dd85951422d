"""Keras's .weights.h5, and the one in a .keras."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from deepfreeze.importing.content import Content, Reading, content_of
from deepfreeze.importing.recognise import HDF5_MAGIC, KERAS_WEIGHTS
from deepfreeze.importing.source_files import SourceFile, fault, stream_of


def read(path: Path, reading: Reading) -> Content:
    """The arrays by their paths in the file, in one dict. Reads them into memory."""
    file = SourceFile(path)
    stream: Any = stream_of(file.memory)
    size = file.bytes
    if bytes(file.memory[: len(HDF5_MAGIC)]) != HDF5_MAGIC:
        stream, size = _weights_in(file)
    state: dict[str, Any] = {}
    try:
        with h5py.File(stream) as weights, reading.progress("read", size) as progress:
            for name, dataset in _datasets(weights, path):
                state[name] = np.asarray(dataset[()])
                progress.add(state[name].nbytes)
    except OSError as cause:  # h5py raises it for a damaged file
        raise fault(path, "", cause) from cause
    return content_of(state, path, [file])


def _weights_in(file: SourceFile) -> tuple[Any, int]:
    """The weights in a .keras as a stream, after its checksum was compared, and their size."""
    try:
        with zipfile.ZipFile(stream_of(file.memory)) as archive:
            info = archive.getinfo(KERAS_WEIGHTS)
            if info.compress_type != zipfile.ZIP_STORED:
                raise fault(file.path, f"({KERAS_WEIGHTS})", "it is compressed", "unsupported")
            with archive.open(info) as record:
                while record.read(1 << 20):
                    pass
                begin = record._orig_compress_start  # type: ignore[attr-defined]
    except (zipfile.BadZipFile, KeyError) as cause:
        raise fault(file.path, "", f"no whole {KERAS_WEIGHTS} in it ({cause})") from cause
    return stream_of(file.memory[begin : begin + info.file_size]), info.file_size


def _datasets(weights: Any, path: Path) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []

    def note(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        if item.external or item.is_virtual:  # its bytes could be those of any file
            raise fault(path, f"({name})", "its data are in another file", "unsupported")
        if item.dtype.kind not in "biufc":
            raise fault(path, f"({name})", f"values of {item.dtype}", "unsupported")
        if item.id.get_storage_size() != item.nbytes:  # Keras compresses nothing
            raise fault(path, f"({name})", "it is compressed, or not all there", "unsupported")
        found.append((name, item))

    weights.visititems(note)  # follows no links out of the file
    return found
