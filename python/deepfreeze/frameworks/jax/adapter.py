"""JAX: arrays, keys and pytree objects, Flax NNX's modules among them.

Shapes and dtypes are the arrays' own; nothing is converted. Sharded arrays are stored whole, so
that they come back on any mesh. An instance serves one save or restore, in the training's thread.
"""

from __future__ import annotations

import logging
import sys
from functools import cache
from typing import Any

import jax  # type: ignore[import-not-found, unused-ignore]
import numpy as np

from deepfreeze.base.imported import imported
from deepfreeze.frameworks.held import HeldArrays
from deepfreeze.frameworks.jax.arrays import encode_array, match_array
from deepfreeze.frameworks.jax.keys import KIND as KEY_KIND
from deepfreeze.frameworks.jax.keys import decode_key, encode_key, is_key, match_key
from deepfreeze.frameworks.jax.trees import encode_tree, is_tree, match_tree
from deepfreeze.state.contracts import Adapter, Filler, Remake, Sink, Source
from deepfreeze.state.kinds import kind_of_live, kind_of_node
from deepfreeze.state.tree import Node

log = logging.getLogger("deepfreeze")

_NUMBERS = (0, False, 0j, np.bool_(False), np.complex64(0), np.complex128(0))
_NUMBER_KINDS = frozenset(map(kind_of_live, _NUMBERS))  # a 0-d array may be made of these
_TESTED = {"jax": "0.10", "flax": "0.12"}


class JaxAdapter(Adapter):
    """Holds arrays while they are copied; a restore puts new arrays into their containers."""

    def __init__(self) -> None:
        self._arrays = HeldArrays()
        self._remakes: dict[tuple[str, int], Remake] = {}

    def claims(self, value: object) -> bool:
        # is_tree() comes last, as it asks for methods: nnx.Rngs would draw a key for any name.
        return isinstance(value, jax.Array) or _is_nnx(value) or is_tree(value)

    def encode(self, value: Any, path: str, capture: Sink) -> Node:
        _warn_of_versions()
        if not isinstance(value, jax.Array):
            capture.refuse_inside(value, path)
            return self._encode_object(value, path, capture)
        if is_key(value):
            return encode_key(value, path, capture, self._arrays)
        return encode_array(value, path, capture, self._arrays)

    def _encode_object(self, value: Any, path: str, capture: Sink) -> Node:
        if _is_nnx(value):
            from deepfreeze.frameworks.jax.nnx import encode_nnx

            return encode_nnx(value, path, capture)
        return encode_tree(value, path, capture)

    def match(self, node: Node, live: Any, path: str, plan: Any) -> Remake:
        _warn_of_versions()
        if isinstance(live, jax.Array):
            return self._match_leaf(node, live, path, plan) if plan.keys.wants_whole(path) else None
        if _is_nnx(live):
            from deepfreeze.frameworks.jax.nnx import match_nnx

            return match_nnx(node, live, path, plan)
        return match_tree(node, live, path, plan)

    def _match_leaf(self, node: Node, live: Any, path: str, plan: Filler) -> Remake:
        if is_key(live):
            return match_key(node, live, path, plan)
        if not live.shape and kind_of_node(node) in _NUMBER_KINDS:
            return plan.fresh(node, path)
        remake = match_array(node, live, path, plan)
        # Two places that shared an array share the new one, too.
        return remake and self._remakes.setdefault((node["k"], id(live)), remake)

    def decodes(self, tag: str, node: Node) -> bool:
        return tag == "object" and node["t"] == KEY_KIND

    def decode(self, tag: str, node: Node, path: str, plan: Source) -> object:
        return decode_key(node, path, plan)

    def environment(self) -> dict[str, str]:
        names = [name for name in ("jax", "jaxlib", "flax", "optax") if imported(name)]
        return {name: _version_of(name) for name in names}


def _is_nnx(value: object) -> bool:
    if not imported("flax.nnx"):
        return False
    from deepfreeze.frameworks.jax.nnx import is_nnx

    return is_nnx(value)


def _version_of(name: str) -> str:
    return str(getattr(sys.modules.get(name), "__version__", ""))


@cache
def _warn_of_versions() -> None:
    for name, tested in _TESTED.items():
        found = _version_of(name)
        if found and not found.startswith(f"{tested}."):
            log.warning("%s %s was never tried with DeepFreeze, only %s was", name, found, tested)
