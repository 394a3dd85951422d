"""The state of Chainer's iterators that their own serialize() leaves out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import chainer  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

from deepfreeze.frameworks.generators import kind_of, set_state, state_of


def iterators_in(updater: Any) -> Iterator[Any]:
    """The iterators that an updater has as attributes, or in an attribute's dict or list."""
    for value in vars(updater).values():
        inner = value.values() if isinstance(value, dict) else value
        for each in inner if isinstance(value, (dict, list, tuple)) else [value]:
            if isinstance(each, chainer.dataset.Iterator):
                yield each


def serialize_rest(iterator: Any, serializer: Any) -> None:
    """Like serialize(), for an iterator's generators and the order that it has drawn ahead."""
    is_restore = isinstance(serializer, chainer.Deserializer)
    for name, generator in _generators_of(_sampler_of(iterator)):
        state = serializer(f"order_sampler/{name}", state_of(generator))
        if is_restore:
            set_state(generator, state)
    if isinstance(iterator, chainer.iterators.MultithreadIterator):
        ahead = serializer("_drawn_ahead", _drawn_ahead(iterator))
        if is_restore:
            _put_ahead(iterator, ahead)


def _sampler_of(iterator: Any) -> Any:
    sampler = getattr(iterator, "order_sampler", None)
    return sampler.sampler if isinstance(sampler, _Drawn) else sampler


def _generators_of(sampler: Any) -> Iterator[tuple[str, Any]]:
    """The generators by name and kind, but NumPy's global one, which df.RNG stores."""
    for name, value in getattr(sampler, "__dict__", {}).items():
        kind = kind_of(value)
        if kind is not None and value is not np.random.mtrand._rand:
            yield f"{name}:{kind}", value


@dataclass
class _Drawn:
    """Replaces an iterator's order sampler, and gives the order that it has drawn before."""

    iterator: Any
    sampler: Any
    order: Any

    def __call__(self, current_order: Any, current_position: int) -> Any:
        self.iterator.order_sampler = self.sampler
        return self.order


def _drawn_ahead(iterator: Any) -> dict[str, Any]:
    """The order of the next epoch, if the batch that was read ahead has begun it."""
    if isinstance(iterator.order_sampler, _Drawn):
        return {"order": iterator.order_sampler.order}
    epochs = 0 if iterator._next is None else iterator._next_state.epoch - iterator.epoch
    if epochs == 0:
        return {}
    if epochs > 1:
        warnings.warn(
            "a batch of MultithreadIterator that is longer than an epoch is not resumed to the bit",
            stacklevel=2,
        )
    return {"order": iterator._next_state.order}


def _put_ahead(iterator: Any, ahead: dict[str, Any]) -> None:
    iterator.order_sampler = _sampler_of(iterator)
    if ahead.get("order") is not None:
        iterator.order_sampler = _Drawn(iterator, iterator.order_sampler, ahead["order"])
