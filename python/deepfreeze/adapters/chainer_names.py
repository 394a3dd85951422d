"""What a Chainer object gives to a serializer, and takes from one, by Chainer's own names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import chainer  # type: ignore[import-not-found, import-untyped, unused-ignore]

_ELAPSED = "_snapshot_elapsed_time"


class Collector(chainer.Serializer):  # type: ignore[misc, unused-ignore]
    """DictionarySerializer's names, but the values themselves: it makes an array of each number."""

    def __init__(self, found: dict[str, Any] | None = None, path: str = "") -> None:
        self.found = {} if found is None else found
        self._path = path

    def __getitem__(self, key: str) -> Collector:
        return Collector(self.found, f"{self._path}{key.strip('/')}/")

    def __call__(self, key: str, value: Any) -> Any:
        self.found[self._path + key.lstrip("/")] = value
        return value


class Restorer(chainer.Deserializer):  # type: ignore[misc, unused-ignore]
    """Gives the values of those names. Arrays among them are filled already, and returned."""

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._values = values
        self._path = path

    def __getitem__(self, key: str) -> Restorer:
        return Restorer(self._values, f"{self._path}{key.strip('/')}/")

    def __call__(self, key: str, value: Any) -> Any:
        # A KeyError where it is not there: objects that can do without catch it.
        return self._values[self._path + key.lstrip("/")]


def values_of(value: Any) -> dict[str, Any]:
    """All that the object serialises, in the order of the names.

    A chain keeps its children in a set, so that their own order differs between processes.
    """
    collector = Collector()
    try:
        value.serialize(collector)
    except RuntimeError:
        if not isinstance(value, chainer.training.Trainer) or _has_started(value):
            raise
        collector.found[_ELAPSED] = 0.0  # the last thing it serialises, and not there before run()
    return dict(sorted(collector.found.items()))


def _has_started(trainer: Any) -> bool:
    try:
        return trainer.elapsed_time is not None
    except RuntimeError:
        return False


def is_data(name: str) -> bool:
    """Whether objects have that name or not as training goes on: means since the last report."""
    return "/_summaries/" in f"/{name}"
