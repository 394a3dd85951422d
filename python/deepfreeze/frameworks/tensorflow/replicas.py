"""Variables that a strategy of tf.distribute keeps on several devices of this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tensorflow.python.distribute.values import DistributedVariable

from deepfreeze.base.names import join
from deepfreeze.state.contracts import Filler
from deepfreeze.state.tree import Node, tag_of

if TYPE_CHECKING:
    import numpy as np


_KIND = "tf.replicas"  # an object with each replica's value, if they differ
_compare = ctypes.CDLL(None).memcmp
_compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

Match = Callable[[Node, Any, str, Filler], None]  # of one variable


def is_distributed(variable: object) -> bool:
    """Whether it consists of one variable per device."""
    return isinstance(variable, DistributedVariable)


def store_replicas(
    arrays: Sequence[np.ndarray[Any, Any]], path: str, store: Callable[[Any, str], Node]
) -> Node:
    """Stores one value if all are equal to the bit, as when all were updated from one gradient.

    Mirrored variables may differ: Keras's batch statistics do.
    """
    if all(_alike(arrays[0], each) for each in arrays[1:]):
        return store(arrays[0], path)
    nodes = {str(i): store(each, join(path, str(i))) for i, each in enumerate(arrays)}
    return {"$": "object", "t": _KIND, "v": nodes}


def _alike(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if not (a.flags.c_contiguous and b.flags.c_contiguous):
        return a.tobytes() == b.tobytes()
    return bool(_compare(a.ctypes.data, b.ctypes.data, a.nbytes) == 0)


def match_replicas(node: Node, live: Any, path: str, plan: Filler, match: Match) -> None:
    """Plans how each replica takes its own value, or all take the one that is stored."""
    components = live.values
    if tag_of(node) != "object" or node["t"] != _KIND:
        for each in components:
            match(node, each, path, plan)
        return
    stored = node["v"]
    if len(stored) != len(components):
        plan.unfit(path, f"{len(stored)} replicas are stored, {len(components)} are live")
        return
    for index, each in enumerate(components):
        match(stored[str(index)], each, join(path, str(index)), plan)
