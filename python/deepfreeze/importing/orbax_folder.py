"""Directories of Orbax."""

from __future__ import annotations

from pathlib import Path

from deepfreeze.importing.content import Content, Reading, content_of
from deepfreeze.importing.source_files import SourceFile, fault

_ITEM = "default"  # of a CheckpointManager's step


def read(source: Path, reading: Reading) -> Content:
    """The pytree, as dicts and lists of arrays, read into memory. Orbax does its own checks."""
    from deepfreeze.frameworks.jax import orbax

    folder = source / _ITEM if (source / _ITEM).is_dir() else source
    files = [SourceFile(each) for each in sorted(folder.rglob("*")) if each.is_file()]
    with reading.progress("read", sum(file.bytes for file in files)):
        try:
            state = orbax.read_tree(folder)
        except Exception as cause:  # Orbax, TensorStore and JAX raise errors of many types
            raise fault(source, "", f"Orbax: {cause}") from cause
    return content_of(state, source, files, unpacked_bytes=orbax.bytes_of(state))
