"""Chainer: links, optimizers, iterators and trainers, under the names of its own serializers.

Arrays are entries of their own; all other values that an object serialises are in the tree.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import chainer  # type: ignore[import-not-found, import-untyped, unused-ignore]

from deepfreeze.base.names import shown
from deepfreeze.errors import EncodeError
from deepfreeze.frameworks.chainer.match import ObjectMatch
from deepfreeze.frameworks.chainer.names import Taken
from deepfreeze.frameworks.chainer.rest import all_of
from deepfreeze.frameworks.chainer.triggers import warn_of_lost
from deepfreeze.frameworks.stateful import object_node
from deepfreeze.state.contracts import Adapter, Filler, Remake, Sink, Source
from deepfreeze.state.tree import Node, tag_of

KIND = "chainer"
TESTED = "7.8.1"
_OBJECTS = (
    chainer.Link,
    chainer.Optimizer,
    chainer.dataset.Iterator,
    chainer.training.Trainer,
    chainer.training.Updater,
    chainer.training.Extension,
)


class ChainerAdapter(Adapter):
    """Stores the values that objects serialise; fills their arrays in place and loads the rest.

    For the training's thread: serialize() of an object is not safe beside its update().
    """

    def claims(self, value: object) -> bool:
        return isinstance(value, _OBJECTS)

    def encode(self, value: Any, path: str, capture: Sink) -> Node:
        warn_if_untested()
        capture.refuse_inside(value, path)
        if isinstance(value, chainer.training.Trainer):
            warn_of_lost(value)
        return object_node(KIND, _all_of(value, path).values, path, capture)

    def note(self, mapping: dict[Any, Any], path: str, node: Node) -> None:
        """Notes nothing, since objects are asked anew: SMORMS3 has new arrays after each update."""

    def match(self, node: Node, live: Any, path: str, plan: Filler) -> Remake:
        warn_if_untested()
        plan.keys.wants_whole(path)  # so that a pattern for all of it counts as used
        if tag_of(node) != "object" or node["t"] != KIND:
            plan.mismatch(path, node, f"a {type(live).__qualname__}")
            return None
        ObjectMatch(live, _all_of(live, path), path, plan).match(node["v"])
        return None

    def decodes(self, tag: str, node: Node) -> bool:
        return False  # without a live object, the values load as a dict of their names

    def decode(self, tag: str, node: Node, path: str, plan: Source) -> object:
        raise NotImplementedError  # decodes() claims nothing

    def environment(self) -> dict[str, str]:
        return {"chainer": chainer.__version__}


def _all_of(value: Any, path: str) -> Taken:
    kind = type(value).__qualname__
    try:
        found = all_of(value)
    except Exception as cause:
        raise EncodeError(f"{shown(path)}: {kind}.serialize() failed: {cause!r}") from cause
    if not found.values and not isinstance(value, chainer.Link):
        raise EncodeError(f"{shown(path)}: {kind}.serialize() gives nothing that could be stored")
    return found


@cache
def warn_if_untested() -> None:
    """Warns once if the program has another version than the one that is tested."""
    if chainer.__version__ != TESTED:
        warnings.warn(
            f"DeepFreeze was tested with Chainer {TESTED}, this is {chainer.__version__}",
            stacklevel=2,
        )
