"""Tells the kind of a source by its content."""

from __future__ import annotations

import importlib
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

from deepfreeze.errors import make_error
from deepfreeze.importing import zip_records
from deepfreeze.importing.content import Content, Reading
from deepfreeze.importing.dcp_index import NAME as DCP_INDEX
from deepfreeze.importing.safetensors_files import INDEX_SUFFIX, SUFFIX
from deepfreeze.importing.safetensors_header import header_bytes
from deepfreeze.importing.source_files import SourceFile, fault, os_fault, stream_of

# The modules that read them; they are imported when needed, because some import torch.
KINDS = {
    "dcp": "dcp",
    "torch": "torch_file",
    "safetensors": "safetensors_files",
    "npz": "numpy_file",
    "keras": "keras_file",
    "tensorflow": "tensorflow_files",
    "orbax": "orbax_folder",
}

# Marks of formats whose readers need libraries that may be missing.
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
KERAS_WEIGHTS = "model.weights.h5"  # of a .keras, which is a zip archive
NPY_SUFFIX = ".npy"
TF_SUFFIX = ".index"
ORBAX_MARKS = ("_CHECKPOINT_METADATA", "_METADATA")
_DCP_OF_ONE_RANK = "__0.metadata"
# Files that torch.save wrote before 1.6 begin with this number, pickled by any protocol.
_OLD_TORCH_NUMBER = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def kind_of(source: Path) -> str:
    """One of KINDS; CheckpointError if the source is none of them."""
    try:
        names = set(os.listdir(source)) if source.is_dir() else None
    except OSError as cause:
        raise os_fault(source, cause) from cause
    return _kind_of_file(SourceFile(source)) if names is None else _kind_of_folder(source, names)


def _kind_of_folder(source: Path, names: set[str]) -> str:
    if DCP_INDEX in names:
        return "dcp"
    if any(name.endswith((INDEX_SUFFIX, SUFFIX)) for name in names):
        return "safetensors"
    if any(name.endswith(TF_SUFFIX) for name in names):
        return "tensorflow"
    if names.intersection(ORBAX_MARKS):
        return "orbax"
    if _DCP_OF_ONE_RANK in names:
        raise fault(
            source,
            "",
            "a DCP directory saved with use_collectives=False: no rank has noted the files of "
            "the others",
            "unsupported",
        )
    raise fault(
        source,
        "",
        f"it has no {DCP_INDEX} (DCP), no safetensors files, and nothing of TensorFlow or Orbax",
        "unsupported",
    )


def _kind_of_file(file: SourceFile) -> str:
    start = bytes(file.memory[:32])
    if file.path.name.endswith(TF_SUFFIX):
        return "tensorflow"
    if start.startswith(zip_records.MAGIC):
        return _kind_of_zip(file)
    if start.startswith(HDF5_MAGIC):
        return "keras"
    if start.startswith(b"\x80") and _OLD_TORCH_NUMBER in start:
        return "torch"
    if header_bytes(file):
        return "safetensors"
    shown = start[:8].hex(" ") or "nothing"
    raise fault(
        file.path,
        "at 0",
        f"it begins with {shown}, as no known kind does, or it is cut",
        "unsupported",
    )


def _kind_of_zip(file: SourceFile) -> str:
    try:
        with zipfile.ZipFile(stream_of(file.memory)) as archive:
            names = archive.namelist()
    except Exception:  # zipfile raises many kinds; the reader will report the error
        return "torch"
    if KERAS_WEIGHTS in names:
        return "keras"
    return "npz" if names and all(name.endswith(NPY_SUFFIX) for name in names) else "torch"


def reader_of(kind: str) -> Callable[[Path, Reading], Content]:
    """The function that reads sources of a kind."""
    try:
        module = importlib.import_module(f"deepfreeze.importing.{KINDS[kind]}")
    except ImportError as cause:
        raise make_error("unsupported", f"import from {kind}: {cause}") from cause
    read: Callable[[Path, Reading], Content] = module.read
    return read
