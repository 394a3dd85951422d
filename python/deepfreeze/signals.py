"""An orderly end on SIGTERM, for programs that ask for it."""

from __future__ import annotations

import _thread
import contextlib
import functools
import logging
import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from deepfreeze.checkpointer import Checkpointer

log = logging.getLogger("deepfreeze")


def finish_on_sigterm(*checkpointers: Checkpointer, seconds_max: float = 60.0) -> None:
    """Makes SIGTERM finish the saves in flight first, and then do as before.

    It begins no save: docs/operations.md shows how to save once more. Call it from the main thread.
    After `seconds_max` seconds the old handler runs in any case. If there was none, the signal ends
    the process as before. The first process of a container ends by SystemExit instead, because no
    signal without a handler ends that process. A forked child has nothing to finish.
    """
    before = signal.getsignal(signal.SIGTERM)
    owner = os.getpid()
    deadline: list[float] = []  # once a signal has come

    def handle(number: int, frame: FrameType | None) -> None:
        # In a forked child no save is in flight, and a save() that the fork interrupted never ends.
        if os.getpid() == owner:
            if not deadline:
                deadline.append(time.monotonic() + seconds_max)
            # A save() that was interrupted has no handle yet: the signal comes again at its end.
            again = functools.partial(os.kill, owner, number)
            may_wait = time.monotonic() < deadline[0]
            if may_wait and any(checkpointer.defer(again) for checkpointer in checkpointers):
                _later(deadline[0], lambda: again() if deadline else None)
                return
            _finish(checkpointers, deadline[0])
            deadline.clear()  # the old handler may let the program continue
        if callable(before):
            before(number, frame)
        elif before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            # Still alive: the kernel drops the signal for the first process of a container.
            raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, handle)


def _later(when: float, action: Callable[[], object]) -> None:
    def wait() -> None:
        time.sleep(max(0.0, when - time.monotonic()))
        action()

    # No threading.Thread: the interrupted code may hold the lock that this takes.
    with contextlib.suppress(RuntimeError):
        _thread.start_new_thread(wait, ())


def _finish(checkpointers: tuple[Checkpointer, ...], deadline: float) -> None:
    for checkpointer in checkpointers:
        for save in checkpointer.in_flight():
            try:
                save.wait("durable", max(0.0, deadline - time.monotonic()))
            except Exception as error:
                log.error("SIGTERM: step %d: %s", save.step, error)
