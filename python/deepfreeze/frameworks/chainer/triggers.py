"""The state of a trainer's triggers and extensions that its serialize() passes over."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import chainer  # type: ignore[import-not-found, import-untyped, unused-ignore]

_EarlyStopping = chainer.training.triggers.EarlyStoppingTrigger

# The numbers, by path, of objects that are not serialised, at the last save; None after a warning.
_last: weakref.WeakKeyDictionary[Any, dict[str, dict[str, Any] | None]]
_last = weakref.WeakKeyDictionary()


def serialize_rest(trainer: Any, serializer: Any) -> None:
    """Like serialize(), for the triggers of early stopping, whose class has no serialize()."""
    for path, each in _passed_over(trainer):
        if isinstance(each, _EarlyStopping):
            _serialize(each, serializer[path])
    if isinstance(trainer.stop_trigger, _EarlyStopping):
        # run() asks it before anything else, so after a resume for the iteration of the save.
        monitor = trainer.stop_trigger.monitor
        found = {key: value for key, value in trainer.observation.items() if key == monitor}
        observed = {key: getattr(value, "array", value) for key, value in found.items()}
        trainer.observation |= serializer("stop_trigger/observed", observed)


def _serialize(trigger: Any, serializer: Any) -> None:
    trigger.count = serializer("count", trigger.count)
    trigger.best = serializer("best", trigger.best)
    trigger._summary.serialize(serializer["_summary"])
    for key in ("_interval_trigger", "_max_trigger"):
        inner = getattr(trigger, key)
        if hasattr(inner, "serialize"):
            inner.serialize(serializer[key])


def warn_of_lost(trainer: Any) -> None:
    """Warns once if an object that is not serialised has other numbers than at the last save."""
    last = _last.setdefault(trainer, {})
    for path, each in _passed_over(trainer):
        numbers = {key: value for key, value in vars(each).items() if type(value) in (int, float)}
        before = last.setdefault(path, numbers)
        if isinstance(each, _EarlyStopping) or before is None:
            continue
        changed = [key for key, value in numbers.items() if before.get(key, value) != value]
        last[path] = None if changed else numbers
        if changed:
            kind = type(each).__qualname__
            warnings.warn(
                f"{path}: {kind}.{changed[0]} changes, but no serialize() of {kind} saves it",
                stacklevel=2,
            )


def _passed_over(trainer: Any) -> Iterator[tuple[str, Any]]:
    """The triggers and extensions whose classes serialise nothing, by path."""
    found = [("stop_trigger", trainer.stop_trigger)]
    for name, entry in trainer._extensions.items():
        found += [(f"extensions/{name}", entry.extension)]
        found += [(f"extension_triggers/{name}", entry.trigger)]
    nothing = chainer.training.Extension.serialize
    for path, each in found:
        own = getattr(each, "serialize", nothing)
        if getattr(own, "__func__", own) is nothing and hasattr(each, "__dict__"):
            yield path, each
