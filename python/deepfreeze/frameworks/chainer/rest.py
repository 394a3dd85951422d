"""All that a Chainer object has to store: the values it serialises, and those it leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import chainer  # type: ignore[import-not-found, import-untyped, unused-ignore]

from deepfreeze.frameworks.chainer import iterators as chainer_iterators
from deepfreeze.frameworks.chainer import optimizers as chainer_optimizers
from deepfreeze.frameworks.chainer import triggers as chainer_triggers
from deepfreeze.frameworks.chainer.names import Collector, Restorer, Taken, taken_of

_PARTS = (chainer.Optimizer, chainer.dataset.Iterator)


def all_of(value: Any) -> Taken:
    """The values by name, in the order of the names.

    A chain keeps its children in a set, so their own order differs between processes.
    """
    taken = taken_of(value, _parts_of(value))
    _serialize_rest(value, taken.parts, Collector(taken.values))
    values = taken.values | chainer_optimizers.left_out(optimizers_of(taken))
    return Taken(dict(sorted(values.items())), taken.parts)


def put(value: Any, taken: Taken, values: Mapping[str, Any]) -> None:
    """Gives an object the values of those names; `taken` are the values that it had."""
    restorer = Restorer(values)
    value.serialize(restorer)
    _serialize_rest(value, taken.parts, restorer)
    chainer_optimizers.put_left_out(optimizers_of(taken), values)


def optimizers_of(taken: Taken) -> dict[str, Any]:
    """The optimizers by the prefix of their names in the object."""
    is_iterator = chainer.dataset.Iterator
    return {head: each for head, each in taken.parts.items() if not isinstance(each, is_iterator)}


def _parts_of(value: Any) -> Iterator[Any]:
    """The optimizers and iterators that an object may serialise."""
    if isinstance(value, _PARTS):
        yield value
    updater = value.updater if isinstance(value, chainer.training.Trainer) else value
    if isinstance(updater, chainer.training.Updater):
        yield from updater.get_all_optimizers().values()
        yield from chainer_iterators.iterators_in(updater)


def _serialize_rest(value: Any, parts: Mapping[str, Any], serializer: Any) -> None:
    if isinstance(value, chainer.training.Trainer):
        chainer_triggers.serialize_rest(value, serializer)
    for head, part in parts.items():
        if isinstance(part, chainer.dataset.Iterator):
            chainer_iterators.serialize_rest(part, serializer[head] if head else serializer)
