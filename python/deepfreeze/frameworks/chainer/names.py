"""The values that a Chainer object gives to a serializer and takes back, by Chainer's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import chainer  # type: ignore[import-not-found, import-untyped, unused-ignore]

_ELAPSED = "_snapshot_elapsed_time"


class Collector(chainer.Serializer):  # type: ignore[misc, unused-ignore]
    """Has DictionarySerializer's names, but keeps values; that would turn numbers into arrays."""

    def __init__(self, found: dict[str, Any], path: str = "") -> None:
        self.found = found
        self.path = path

    def __getitem__(self, key: str) -> Collector:
        return Collector(self.found, f"{self.path}{key.strip('/')}/")

    def __call__(self, key: str, value: Any) -> Any:
        self.found[self.path + key.lstrip("/")] = value
        return value


class Restorer(chainer.Deserializer):  # type: ignore[misc, unused-ignore]
    """Gives the values of those names. Arrays are returned as they are: they are filled already."""

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._values = values
        self._path = path

    def __getitem__(self, key: str) -> Restorer:
        return Restorer(self._values, f"{self._path}{key.strip('/')}/")

    def __call__(self, key: str, value: Any) -> Any:
        # KeyError if it is missing: objects that can do without it catch the error.
        return self._values[self._path + key.lstrip("/")]


@dataclass(frozen=True)
class Taken:
    """The values that an object serialises, and its parts that do so, by their names' prefix."""

    values: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)


def taken_of(value: Any, parts: Iterable[Any]) -> Taken:
    """The values and parts that the object serialises."""
    taken = Taken()
    with ExitStack() as stack:
        for part in {id(part): part for part in parts}.values():
            stack.enter_context(_noting(part, taken.parts))
        try:
            value.serialize(Collector(taken.values))
        except RuntimeError as error:
            if not isinstance(value, chainer.training.Trainer) or str(error) != _no_time(value):
                raise
            taken.values[_ELAPSED] = 0.0  # serialised last, and missing before run()
    return taken


@contextmanager
def _noting(part: Any, parts: dict[str, Any]) -> Iterator[None]:
    """Meanwhile, notes the name under which a part is serialised: only its owner knows it."""
    serialize, members = part.serialize, vars(part)
    before = {key: members[key] for key in ("serialize", "_next") if key in members}

    def note(serializer: Any) -> None:
        parts.setdefault(serializer.path, part)
        serialize(serializer)

    members["serialize"] = note
    try:
        yield
    finally:
        del members["serialize"]
        members.update(before)  # a MultithreadIterator forgets the batch that it has read ahead


def _no_time(trainer: Any) -> str | None:
    """The reason why a trainer has no elapsed time: run() was not called."""
    try:
        _ = trainer.elapsed_time
    except RuntimeError as error:
        return str(error)
    return None


def is_data(name: str) -> bool:
    """Whether objects may have or lack that name as training goes on: means since a report."""
    return "/_summaries/" in f"/{name}"
