"""How long a part may take: what would not fit is not begun, what takes too long is ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class OutOfTime(BaseException):
    """Raised in the main thread when the time is over; like an interrupt, nobody's failure."""


def out_of_time(*_: object) -> NoReturn:
    raise OutOfTime


class Budget:
    def __init__(self, minutes: float) -> None:
        self.ends = time.monotonic() + 60 * minutes
        self.took: dict[str, float] = {}  # seconds at most, of each kind of work

    def left_seconds(self) -> float:
        return max(0.0, self.ends - time.monotonic())

    def fits(self, work: str) -> bool:
        """As far as is known from earlier work of this kind."""
        return self.took.get(work, 0.0) < self.left_seconds()

    @contextmanager
    def timed(self, work: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.took[work] = max(self.took.get(work, 0.0), time.monotonic() - began)

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """OutOfTime comes out of the block where it takes longer."""
        before = signal.signal(signal.SIGALRM, out_of_time)
        signal.setitimer(signal.ITIMER_REAL, max(self.left_seconds(), 1e-3))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
