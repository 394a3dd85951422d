"""What a Chainer object gives to a serializer, and takes from one, by Chainer's own names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import chainer  # type: ignore[import-not-found, import-untyped, unused-ignore]

_ELAPSED = "_snapshot_elapsed_time"


class Collector(chainer.Serializer):  # type: ignore[misc, unused-ignore]
    """DictionarySerializer's names, but the values themselves: it makes an array of each number."""

    def __init__(self, found: dict[str, Any], path: str = "") -> None:
        self.found = found
        self.path = path

    def __getitem__(self, key: str) -> Collector:
        return Collector(self.found, f"{self.path}{key.strip('/')}/")

    def __call__(self, key: str, value: Any) -> Any:
        self.found[self.path + key.lstrip("/")] = value
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


@dataclass(frozen=True)
class Taken:
    """What an object serialises, and those of its parts that do, by what their names begin with."""

    values: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)


def taken_of(value: Any, parts: Iterable[Any]) -> Taken:
    """All that the object serialises."""
    taken = Taken()
    with ExitStack() as stack:
        for part in {id(part): part for part in parts}.values():
            stack.enter_context(_noting(part, taken.parts))
        try:
            value.serialize(Collector(taken.values))
        except RuntimeError as error:
            if not isinstance(value, chainer.training.Trainer) or str(error) != _no_time(value):
                raise
            taken.values[_ELAPSED] = 0.0  # the last thing it serialises, and not there before run()
    return taken


@contextmanager
def _noting(part: Any, parts: dict[str, Any]) -> Iterator[None]:
    """Meanwhile, notes under which names a part serialises itself: its owner alone knows them."""
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
    """Why a trainer has no elapsed time: run() was not called."""
    try:
        _ = trainer.elapsed_time
    except RuntimeError as error:
        return str(error)
    return None


def is_data(name: str) -> bool:
    """Whether objects have that name or not as training goes on: means since the last report."""
    return "/_summaries/" in f"/{name}"
