"""Directories of Orbax."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from deepfreeze.importing.content import Content, Reading, content_of
from deepfreeze.importing.source_files import SourceFile, fault

_ITEM = "default"  # of a CheckpointManager's step


def read(source: Path, reading: Reading) -> Content:
    """The pytree, as dicts and lists of arrays, read into memory. Orbax does its own checks."""
    import jax
    import orbax.checkpoint as ocp

    folder = source / _ITEM if (source / _ITEM).is_dir() else source
    files = [SourceFile(each) for each in sorted(folder.rglob("*")) if each.is_file()]
    with reading.progress("read", sum(file.bytes for file in files)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Orbax warns that shardings differ from the saved ones
        try:
            reader = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
            tree = reader.metadata(folder.absolute()).item_metadata.tree
            how = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
            arguments = ocp.args.PyTreeRestore(restore_args=how)
            state: Any = reader.restore(folder.absolute(), args=arguments)
        except Exception as cause:  # Orbax, TensorStore and JAX raise errors of many types
            raise fault(source, "", f"Orbax: {cause}") from cause
    unpacked = sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(state))
    return content_of(state, source, files, unpacked_bytes=unpacked)
