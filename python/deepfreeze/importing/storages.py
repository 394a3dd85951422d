"""Which storages a pickle of torch.save refers to, and of how many elements.

A file that is mapped gives a storage whatever lies behind its record too, where the pickle claims
more than the record has. And weights_only lets a pickle make tensors of memory that nothing fills.
So that is looked at before: everything in the pickle but the claims is replaced by something that
does nothing.
"""

from __future__ import annotations

from typing import IO, Any

from deepfreeze.importing.unpickler import Unpickler


class ClaimError(Exception):
    """A pickle that claims what can't be; the message says what."""


class _Nothing:
    """Takes what a pickle does to an object of any kind."""

    __slots__ = ()

    def __new__(cls, *_: Any, **__: Any) -> _Nothing:
        return super().__new__(cls)

    def take(self, *_: Any) -> None:
        """Whatever is set, added or updated."""

    __setstate__ = __setitem__ = append = extend = add = take


class _Filled(_Nothing):
    """Stands for a class whose instances come with their contents, or not at all."""

    __slots__ = ()

    def __new__(cls, *contents: Any, **_: Any) -> _Filled:
        if cls.__name__ != "bytearray" or any(isinstance(one, int) for one in contents[:1]):
            raise ClaimError(f"it makes a {cls.__name__} without saying what is in it")
        return object.__new__(cls)


class _Claims(Unpickler):
    def __init__(self, stream: IO[bytes], found: dict[str, tuple[str, int]]) -> None:
        super().__init__(stream)
        self._found = found

    def find_class(self, _: str, name: str) -> Any:
        """A class of that name, and nothing else of it."""
        must_be_filled = name == "bytearray" or name.endswith(("Tensor", "Storage"))
        base = _Filled if must_be_filled else _Nothing
        return type(name, (base,), {"__slots__": ()})

    def persistent_load(self, claim: Any) -> Any:
        """Notes what a tensor says about its storage."""
        _, kind, key, _, count, *_ = claim
        one = kind.__name__, int(count)
        if self._found.setdefault(str(key), one) != one:
            raise ClaimError(f"it claims storage {key} twice, of different sizes or types")
        return _Nothing()


def storages_in(stream: IO[bytes], pickles: int = 1) -> dict[str, tuple[str, int]]:
    """Kind, as in "FloatStorage", and elements of each storage in so many pickles.

    ClaimError where it is clear that nothing must be made of them; an error of any other kind where
    they are not what torch.save writes.
    """
    found: dict[str, tuple[str, int]] = {}
    for _ in range(pickles):
        _Claims(stream, found).load()
    return found
