"""Connections to the store over which the program's ranks found each other, for the calls of DCP.

Who waits on a connection keeps others from it. With one for the whole process the ranks could wait
for each other: the trainer's thread of one, in a collective that needs the store, for what the
other rank's trainer can't send, because the save behind it waits for the first rank's. So each call
has its own, which is kept for the next.
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
    """One that nobody else uses; None for a single rank. Dropped where the call fails. Any thread.

    The stubs of stores are those of an older one, so it is Any.
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
