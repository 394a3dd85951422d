"""Waiting for other processes by polling, when nothing can wake us."""

from __future__ import annotations

import time
from collections.abc import Iterator

_PAUSE_MIN_SECONDS = 0.0005
_PAUSE_MAX_SECONDS = 0.05


def polls(timeout_seconds: float) -> Iterator[None]:
    """Looks, with growing pauses between them; ends after the deadline, with one last look."""
    deadline = time.monotonic() + timeout_seconds
    pause = _PAUSE_MIN_SECONDS
    while True:
        late = time.monotonic() >= deadline
        yield
        if late:
            return
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE_MAX_SECONDS)
