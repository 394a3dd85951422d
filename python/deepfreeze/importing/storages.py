"""Which storages a pickle of torch.save refers to, and of how many elements.

A file that is mapped gives a storage whatever lies behind its record too, where the pickle claims
more than the record has. So that is looked at before: everything in the pickle but the claims is
replaced by something that does nothing.
"""

from __future__ import annotations

import io
import pickle
from typing import Any


class _Nothing:
    """Takes what a pickle does to an object of any kind."""

    __slots__ = ()

    def __new__(cls, *_: Any, **__: Any) -> _Nothing:
        return super().__new__(cls)

    def take(self, *_: Any) -> None:
        """Whatever is set, added or updated."""

    __setstate__ = __setitem__ = append = extend = add = take


class _Claims(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.found: dict[str, tuple[str, int]] = {}

    def find_class(self, _: str, name: str) -> Any:
        """A class of that name, and nothing else of it."""
        return type(name, (_Nothing,), {"__slots__": ()})

    def persistent_load(self, claim: Any) -> Any:
        """Notes what a tensor says about its storage."""
        _, kind, key, _, count = claim
        self.found[str(key)] = (kind.__name__, int(count))
        return _Nothing()


def storages_in(data: bytes) -> dict[str, tuple[str, int]]:
    """Kind, as in "FloatStorage", and elements of each storage; an error of any kind for others."""
    claims = _Claims(data)
    claims.load()
    return claims.found
