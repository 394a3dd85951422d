"""Reads directories of Orbax."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp


def read_tree(folder: Path) -> Any:
    """The pytree, as dicts and lists of NumPy's arrays. Orbax does its own checks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Orbax warns that shardings differ from the saved ones
        reader = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
        tree = reader.metadata(folder.absolute()).item_metadata.tree
        how = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        arguments = ocp.args.PyTreeRestore(restore_args=how)
        return reader.restore(folder.absolute(), args=arguments)


def bytes_of(tree: Any) -> int:
    """The bytes of its arrays."""
    return sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(tree))
