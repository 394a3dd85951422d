"""The C++ half of the experiment, through ctypes: every call releases the GIL."""

from __future__ import annotations

import ctypes
import enum
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LIBRARY_VARIABLE = "DEEPFREEZE_ADOPTION_LIBRARY"
LIBRARY = Path(__file__).parents[2] / "build/release/bench/adoption/libdeepfreeze_adoption.so"
MESSAGE_BYTES = 4096


class ChecksumTime(enum.IntEnum):
    """When a save is checksummed; see adopted_state.h."""

    BEFORE_RETURN = 0
    BEHIND_IDLE = 1
    BEHIND_NORMAL = 2
    AT_FENCE = 3
    NEVER = 4


class AdoptionError(Exception):
    """What the C++ half says."""


@dataclass(frozen=True)
class Form:
    """One tensor of the file."""

    key: str
    dtype: str  # as safetensors names it
    shape: tuple[int, ...]
    logical_dtype: str


@dataclass(frozen=True)
class Outcome:
    """What became of a save."""

    committed: bool
    durable_seconds: float
    error: str


class _Form(ctypes.Structure):
    _fields_ = (
        ("key", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("logical_dtype", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_uint64)),
        ("rank", ctypes.c_uint64),
    )


class _OpenRequest(ctypes.Structure):
    _fields_ = (
        ("directory", ctypes.c_char_p),
        ("forms", ctypes.POINTER(_Form)),
        ("form_count", ctypes.c_uint64),
        ("checksum_time", ctypes.c_uint32),
        ("has_fences", ctypes.c_uint32),
    )


class _Outcome(ctypes.Structure):
    _fields_ = (("is_committed", ctypes.c_uint32), ("durable_seconds", ctypes.c_double))


class _Message(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char_p), ("room", ctypes.c_uint64))


_STATE = ctypes.c_void_p
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "open": (_STATE, [ctypes.POINTER(_OpenRequest), _Message]),
    "place": (ctypes.c_void_p, [_STATE, ctypes.c_uint64]),
    "memory": (ctypes.c_void_p, [_STATE]),
    "memory_bytes": (ctypes.c_uint64, [_STATE]),
    "save": (
        ctypes.c_bool,
        [_STATE, ctypes.c_uint64, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), _Message],
    ),
    "fence": (ctypes.c_double, [_STATE]),
    "wait": (None, [_STATE]),
    "outcome": (ctypes.c_bool, [_STATE, ctypes.c_uint64, ctypes.POINTER(_Outcome), _Message]),
    "close": (None, [_STATE]),
    "free": (None, [_STATE]),
}


def library_path() -> Path:
    """Where it is built, unless the environment says otherwise."""
    return Path(os.environ.get(LIBRARY_VARIABLE) or LIBRARY)


@cache
def _library(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path.resolve()))
    for name, (result, arguments) in _SIGNATURES.items():
        function = library[f"adoption_{name}"]
        function.restype = result  # type: ignore[assignment]
        function.argtypes = arguments  # type: ignore[assignment]
        setattr(library, name, function)
    return library


def _no_message() -> tuple[ctypes.Array[ctypes.c_char], _Message]:
    buffer = ctypes.create_string_buffer(MESSAGE_BYTES)
    return buffer, _Message(ctypes.cast(buffer, ctypes.c_char_p), MESSAGE_BYTES)


def _text(buffer: ctypes.Array[ctypes.c_char]) -> str:
    return bytes(buffer.value).decode(errors="replace")


def _native(form: Form) -> _Form:
    shape = (ctypes.c_uint64 * len(form.shape))(*form.shape)
    return _Form(
        form.key.encode(),
        form.dtype.encode(),
        form.logical_dtype.encode(),
        shape,
        len(form.shape),
    )


class AdoptedState:
    """The arena that tensors live in, and its saves; see adopted_state.h.

    The memory is there until `memory`, and so the last tensor made from it, is gone.
    """

    def __init__(
        self,
        directory: Path,
        forms: Sequence[Form],
        checksum_time: ChecksumTime,
        *,
        has_fences: bool = True,
    ) -> None:
        self._library = _library(library_path())
        native = (_Form * len(forms))(*map(_native, forms))
        request = _OpenRequest(
            os.fsencode(directory), native, len(forms), checksum_time, int(has_fences)
        )
        text, message = _no_message()
        self._state = self._library.open(ctypes.byref(request), message)
        if not self._state:
            raise AdoptionError(_text(text))
        address = self._library.memory(self._state)
        self.memory = (ctypes.c_ubyte * self._library.memory_bytes(self._state)).from_address(
            address
        )
        gone = weakref.finalize(self.memory, self._library.free, self._state)
        gone.atexit = False  # tensors may outlive it there
        self.offsets = [
            self._library.place(self._state, index) - address for index in range(len(forms))
        ]

    def save(self, step: int, objects: str, sources: Sequence[int | None]) -> None:
        """Begins one; `sources` are addresses of what does not live in its place."""
        addresses = (ctypes.c_void_p * len(self.offsets))(*sources)
        text, message = _no_message()
        if not self._library.save(self._state, step, objects.encode(), addresses, message):
            raise AdoptionError(_text(text))

    def fence(self) -> float:
        """Returns when live memory may change; the seconds that this took."""
        return float(self._library.fence(self._state))

    def wait(self) -> None:
        """Returns once every save has settled and older ones are deleted."""
        self._library.wait(self._state)

    def outcome(self, step: int) -> Outcome | None:
        """Of a save that has settled."""
        found = _Outcome()
        text, message = _no_message()
        if not self._library.outcome(self._state, step, ctypes.byref(found), message):
            return None
        return Outcome(bool(found.is_committed), found.durable_seconds, _text(text))

    def close(self) -> None:
        """Waits, then gives the threads back; the memory stays."""
        self._library.close(self._state)
