"""Connections to the store over which the program's ranks found each other, for the calls of DCP.

A thread that waits on a connection blocks every other thread that uses it. With one connection for
the whole process two ranks could wait for each other for ever: on the first rank the trainer's
collective waits for a message of the second rank's trainer, which waits for its save, and that save
waits for the first rank. So each call of DCP has a connection of its own, kept for the next call.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch.distributed.distributed_c10d import _get_default_store

_lock = threading.Lock()
_idle: list[tuple[Any, Any]] = []  # the program's store, and a connection to it


@contextlib.contextmanager
def connection(world_size: int) -> Iterator[Any]:
    """A connection that no other call uses; None for a single rank. May be called by any thread.

    A connection whose call fails is dropped. The type is Any, since torch's stubs of stores are out
    of date.
    """
    if world_size == 1:
        yield None
        return
    program: Any = _get_default_store()
    with _lock:
        _idle[:] = [one for one in _idle if one[0] is program]
        found = _idle.pop()[1] if _idle else None
    store = program.clone() if found is None else found
    yield store
    with _lock:
        _idle.append((program, store))
