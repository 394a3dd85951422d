"""The errors that callers tell apart to act on them."""

from __future__ import annotations

from deepfreeze.base.names import shortened

GONE = "gone"  # an error code: a checkpoint was deleted after it had been listed


class CheckpointError(Exception):
    """A save, restore or load that failed; `code` is the native engine's name of the cause."""

    code = "io"
    state_modified = False  # whether a restore had already written into live objects

    def __init__(
        self, message: str, *, code: str | None = None, state_modified: bool = False
    ) -> None:
        super().__init__(printable(message))
        if code is not None:
            self.code = code
        self.state_modified = state_modified


class CorruptError(CheckpointError):
    """Stored bytes do not verify."""

    code = "corrupt"


class IncompleteError(CheckpointError):
    """A checkpoint lacks a part."""

    code = "incomplete"


class NoSpaceError(CheckpointError):
    """The disk or quota is full."""

    code = "no_space"


class MismatchError(CheckpointError):
    """Stored and live keys, shapes, dtypes or kinds differ."""

    code = "mismatch"


class EncodeError(CheckpointError):
    """A value of the state can't be stored."""

    code = "encode"


class FencedError(CheckpointError):
    """Another process has taken the run over."""

    code = "fenced"


class TornCaptureError(CheckpointError):
    """A tensor changed while it was captured."""

    code = "torn_capture"
    tensors: tuple[str, ...] = ()  # their keys


class CheckpointTimeoutError(CheckpointError, TimeoutError):
    """A deadline passed."""

    code = "timeout"


_TYPES: dict[str, type[CheckpointError]] = {
    kind.code: kind
    for kind in (
        CorruptError,
        IncompleteError,
        NoSpaceError,
        MismatchError,
        EncodeError,
        FencedError,
        TornCaptureError,
        CheckpointTimeoutError,
    )
}


def printable(text: str) -> str:
    """The text for messages: surrogates, which no stream can print, escaped; long names shortened.

    A surrogate stands for a byte of a path that is not UTF-8.
    """
    return shortened(text).encode(errors="backslashreplace").decode()


def message_of(error: BaseException) -> str:
    """The message of an exception, for the native engine and other ranks."""
    return printable(str(error) or type(error).__name__)


def code_of(error: BaseException) -> str:
    """The native engine's code for an exception."""
    if isinstance(error, CheckpointError):
        return error.code
    return "internal" if isinstance(error, Exception) else "cancelled"


def make_error(code: str, message: str) -> CheckpointError:
    """The exception for a native error."""
    return _TYPES.get(code, CheckpointError)(message, code=code)
