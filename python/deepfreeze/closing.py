"""The end of checkpointers that nobody has closed."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import os
import weakref
from typing import Protocol

from deepfreeze import _core
from deepfreeze.errors import CheckpointError, code_of, make_error
from deepfreeze.handle import Completer

log = logging.getLogger("deepfreeze")


class Closable(Protocol):
    """What close_all() needs of a checkpointer."""

    @property
    def path(self) -> os.PathLike[str]:
        """Names it in an error."""

    def close(self) -> None:
        """Waits for what is in flight, at most so long."""


_open: weakref.WeakSet[Closable] = weakref.WeakSet()


def opened(checkpointer: Closable) -> None:
    """It is closed at the program's end, unless closed() comes first."""
    _open.add(checkpointer)


def closed(checkpointer: Closable) -> None:
    """Nothing is left to do for it."""
    _open.discard(checkpointer)


def close_engine(engine: _core.Engine, completer: Completer, owner: int) -> None:
    """For a checkpointer that was dropped: the engine's own destructor would keep the GIL."""
    if os.getpid() != owner:
        return
    try:
        engine.fence_all()
        completer.join_or_give_up()  # it confirms the save in flight
        engine.close()
    except CheckpointError as error:
        with contextlib.suppress(Exception):
            log.error("close: %s", error)


def end_engine(engine: _core.Engine, completer: Completer, path: os.PathLike[str]) -> None:
    """Gives threads and memory back. Raises the first error if no save has ever succeeded.

    Unless it was told: a program that looks at no save must not end well without one checkpoint.
    """
    if completer.gave_up:
        # Joining the engine's threads could wait for ever: leave them to the process's end.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))
    else:
        engine.close()
    error = completer.untold()
    if error is not None:
        message = f"{path}: no save has succeeded, of {completer.failed_saves}. The first: {error}"
        raise make_error(code_of(error), message) from error


def _close_all() -> None:
    for checkpointer in list(_open):
        try:
            checkpointer.close()
        except CheckpointError as error:
            log.error("close %s: %s", checkpointer.path, error)


atexit.register(_close_all)
