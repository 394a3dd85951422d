"""Which storages a pickle of torch.save refers to, and of how many elements.

If a pickle claims more than its record has, the storage of a mapped file shows the bytes after the
record, too. And weights_only lets a pickle make tensors of memory that nothing fills. So pickles
are checked first: everything in them but the claims is replaced by objects that do nothing.
"""

from __future__ import annotations

from typing import IO, Any

from deepfreeze.importing.unpickler import Unpickler


class ClaimError(Exception):
    """A pickle makes a claim that can't be true; the message names it."""


class _Nothing:
    """Accepts every operation that a pickle may do to an object."""

    __slots__ = ()

    def __new__(cls, *_: Any, **__: Any) -> _Nothing:
        return super().__new__(cls)

    def take(self, *_: Any) -> None:
        """Ignores the values that are set, added or updated."""

    __setstate__ = __setitem__ = append = extend = add = take


class _Filled(_Nothing):
    """Stands for a class whose instances come with their contents, or not at all."""

    __slots__ = ()

    def __new__(cls, *contents: Any, **_: Any) -> _Filled:
        if cls.__name__ != "bytearray" or any(isinstance(one, int) for one in contents[:1]):
            raise ClaimError(f"it makes a {cls.__name__} without giving its contents")
        return object.__new__(cls)


class _Claims(Unpickler):
    def __init__(self, stream: IO[bytes], found: dict[str, tuple[str, int]]) -> None:
        super().__init__(stream)
        self._found = found

    def find_class(self, _: str, name: str) -> Any:
        """A stand-in class of that name."""
        must_be_filled = name == "bytearray" or name.endswith(("Tensor", "Storage"))
        base = _Filled if must_be_filled else _Nothing
        return type(name, (base,), {"__slots__": ()})

    def persistent_load(self, claim: Any) -> Any:
        """Notes the storage that a tensor claims."""
        _, kind, key, _, count, *_ = claim
        one = kind.__name__, int(count)
        if self._found.setdefault(str(key), one) != one:
            raise ClaimError(f"it claims storage {key} twice, of different sizes or types")
        return _Nothing()


def storages_in(stream: IO[bytes], pickles: int = 1) -> dict[str, tuple[str, int]]:
    """The kind ("FloatStorage", ...) and element count of each storage in `pickles` pickles.

    ClaimError if the pickle's tensors can't be trusted; an error of any other type if torch.save
    would not write such a pickle.
    """
    found: dict[str, tuple[str, int]] = {}
    for _ in range(pickles):
        _Claims(stream, found).load()
    return found
