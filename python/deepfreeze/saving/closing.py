"""Ends checkpointers that the program has not closed."""

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
from deepfreeze.saving.completer import Completer

log = logging.getLogger("deepfreeze")


class Closable(Protocol):
    """The part of a checkpointer that close_all() needs."""

    @property
    def path(self) -> os.PathLike[str]:
        """The run's path, which errors name."""

    def close(self) -> None:
        """Waits for saves in flight, up to a time limit."""


_open: weakref.WeakSet[Closable] = weakref.WeakSet()


def opened(checkpointer: Closable) -> None:
    """Has it closed at the program's end, unless closed() comes first."""
    _open.add(checkpointer)


def closed(checkpointer: Closable) -> None:
    """Forgets a checkpointer that was closed."""
    _open.discard(checkpointer)


def close_when_dropped(
    checkpointer: Closable, engine: _core.Engine, completer: Completer
) -> weakref.finalize[..., Closable]:
    """Has its engine closed once nobody has the checkpointer any more; not at the program's end.

    There close_all() does it, with a deadline.
    """
    finalizer = weakref.finalize(checkpointer, close_engine, engine, completer, os.getpid())
    finalizer.atexit = False
    return finalizer


def close_engine(engine: _core.Engine, completer: Completer, owner: int) -> None:
    """Closes a dropped checkpointer's engine: its own destructor would keep the GIL."""
    if os.getpid() != owner:
        return
    try:
        engine.fence_all()
        completer.join_or_give_up()  # it confirms the save in flight
        try:
            engine.close()
        finally:
            completer.settle_late()
    except CheckpointError as error:
        with contextlib.suppress(Exception):
            log.error("close: %s", error)


def end_engine(engine: _core.Engine, completer: Completer, path: os.PathLike[str]) -> None:
    """Gives threads and memory back. Raises the first error if no save has ever succeeded.

    It does not raise an error that the program was told of. A program that never looks at its
    saves must not end well without one checkpoint.
    """
    if completer.gave_up:
        # Joining the engine's threads could wait for ever: leave them to the process's end.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))
        completer.fail_late()
    else:
        try:
            engine.close()  # it waits for the tiers
        finally:
            completer.settle_late()
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
