"""Dotted names of the values in a state, and patterns that choose among them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache, reduce

# These limits are also in src/base/shortened.cc.
_NAME_MAX, _BEGINNING, _END = 300, 150, 50  # characters
_LONG_NAME = re.compile(rf"\S{{{_NAME_MAX + 1},}}")
_TEXT_MAX = 4_000


@lru_cache(maxsize=65536)
def escaped(key: str) -> str:
    """A text key of a container as part of a name; dots in it read as levels."""
    parts = key.replace("%", "%25").replace("~", "%7E").split(".")
    # An empty component would vanish in the dotted name, so it is written as a lone "%".
    return ".".join(parts if all(parts) else [part or "%" for part in parts])


def component(key: object) -> str:
    """Any key as part of a name."""
    return escaped(key if type(key) is str else str(key))


def join(path: str, key: object) -> str:
    """The name of the value under `key` in the container called `path` ("" is the root)."""
    part = escaped(key if type(key) is str else str(key))
    return f"{path}.{part}" if path else part


def joined(path: str, keys: Iterable[object]) -> list[str]:
    """The names of the values under all `keys` in one container."""
    return [join(path, key) for key in keys]


def nested(keys: Iterable[object]) -> str:
    """The name of a value that such keys lead to, the root's first."""
    return reduce(join, keys, "")


def shown(path: str) -> str:
    """The name, as messages print it."""
    return _elided(path, _BEGINNING) if len(path) > _NAME_MAX else path or "the state"


def shortened(text: str) -> str:
    """A message with its middle left out if it is too long; the same for each name in it."""
    if len(text) <= _NAME_MAX:
        return text
    text = _LONG_NAME.sub(lambda name: _elided(name[0], _BEGINNING), text)
    return text if len(text) <= _TEXT_MAX else _elided(text, _TEXT_MAX - 2 * _NAME_MAX)


def _elided(text: str, beginning: int) -> str:
    left_out = len(text) - beginning - _END
    return f"{text[:beginning]}...({left_out} characters left out)...{text[-_END:]}"


class Owner(Enum):
    """The owner of a value, at places where ranks may differ."""

    EACH = "each"  # every rank stores its own
    ANOTHER = "another"  # another rank owns the value and stores it


class KeyTable:
    """Hands out the keys of one checkpoint, each only once.

    `rank`: the number of this process among several; None if it is alone, and owns everything.
    """

    def __init__(self, rank: int | None = None) -> None:
        self.rank = rank
        self._taken: set[str] = set()
        self._owners: dict[str, Owner] = {}

    def own(self, path: str, owner: Owner) -> None:
        """From now on the owner has the place called `path`, and all places within it."""
        if self.rank is not None:
            self._owners[path] = owner

    @property
    def owners(self) -> dict[str, Owner]:
        """The owners that own() has noted so far."""
        return dict(self._owners)

    def owner_of(self, path: str) -> Owner | None:
        """The owner of a place; None if all ranks have the same value."""
        if not self._owners:
            return None
        found = self._owners.get(path)
        while found is None and path:
            path = path.rpartition(".")[0]
            found = self._owners.get(path)
        return found

    def taken(self) -> frozenset[str]:
        """All keys handed out so far."""
        return frozenset(self._taken)

    def take(self, path: str) -> str:
        """`path`, with a suffix if two places of the state have the same name."""
        return self.take_owned(path)[0]

    def take_owned(self, path: str) -> tuple[str, Owner | None]:
        """The same, and the owner of the place."""
        base = path
        owner = self.owner_of(path) if self._owners else None
        if owner is Owner.EACH:
            base = f"@rank{self.rank:05}.{path}"
        elif path.startswith("@"):  # it starts a per-rank key
            base = "%40" + path[1:]
        elif path == "__metadata__":  # safetensors keeps it for itself
            base = "%5F" + path[1:]
        key = base
        count = 1
        while key in self._taken:
            count += 1
            key = f"{base}~{count}"
        self._taken.add(key)
        return key, owner


_WILD = re.compile(r"[*?[]")


def chooses(pattern: str, path: str) -> bool:
    """Whether a shell pattern chooses the place called `path`, or a place that contains it."""
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*")


class KeyFilter:
    """Chooses places of the state by shell patterns on their names; all if there are none."""

    def __init__(self, patterns: Sequence[str] | None) -> None:
        if isinstance(patterns, str):
            raise TypeError("keys: a list of patterns, not a string")
        self._patterns = None if patterns is None else tuple(patterns)
        self._beginnings = tuple(_WILD.split(each, 1)[0] for each in self._patterns or ())
        self.chooses_all = patterns is None

    def wants(self, path: str) -> bool:
        """Whether the place called `path` is chosen."""
        if self._patterns is None:
            return True
        return any(chooses(pattern, path) for pattern in self._patterns)

    def may_want_within(self, path: str) -> bool:
        """False only if nothing at or below the place is chosen. Compares beginnings alone."""
        within = f"{path}."
        return self._patterns is None or any(
            within.startswith(beginning) or beginning.startswith(within)
            for beginning in self._beginnings
        )

    def wants_whole(self, path: str) -> bool:
        """Like wants(), for an object that is restored whole: "sched.*" means all of "sched"."""
        return self.wants(path) or self.wants(path + ".")
