"""The thread that completes the futures of saves, and counts failures."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from deepfreeze.base.names import shown
from deepfreeze.saving.handle import (
    EXIT_SECONDS_MAX,
    ExitDeadline,
    ExitDeadlineError,
    SaveHandle,
)

log = logging.getLogger("deepfreeze")

_LINGER_SECONDS = 5.0  # how long the thread waits for another save
_LATE_SECONDS = 0.5  # how often it asks for saves that are on their way to tiers
_END_NOTICED_SECONDS = 0.05  # how soon it then notices that the program has ended
_JOIN_SECONDS = 2.0  # for a thread that has nothing left to do
_NAMED_MAX = 5  # tensors, and ranks of each, in a warning


class Settled(Protocol):
    """Counts saves."""

    def settled(self, handle: SaveHandle) -> None:
        """The save has ended: it is durable, has failed, or will not come to its last tier."""

    def waiting(self) -> None:
        """A save is committed, and on its way to a tier."""


class Completer:
    """Completes the futures of one checkpointer's saves in order, and counts failures.

    Its thread begins with a save and lingers for the next one, because starting a thread takes long
    on busy cores. It is no daemon, so the interpreter waits for it before it ends. It holds the
    handles, never the checkpointer.
    """

    def __init__(
        self,
        counters: Settled | None = None,
        saved: Callable[[SaveHandle], None] | None = None,
    ) -> None:
        """The thread calls `saved` when a save becomes durable, and `counters.settled` after each
        that ended.

        Neither may raise.
        """
        self.failed_saves = 0
        self._settled = None if counters is None else counters.settled
        self._waiting = None if counters is None else counters.waiting
        self._saved = saved
        self._unraised: BaseException | None = None
        self._has_saved = False
        self._first_failed: tuple[SaveHandle, BaseException] | None = None  # until a save succeeds
        self._finite = True  # whether the last save held finite values only, as far as is known
        self.gave_up = False  # a save was still in flight when the exit deadline was over
        self._lock = threading.RLock()  # a signal handler may ask while its own thread holds it
        self._changed = threading.Condition(self._lock)
        self._todo: deque[SaveHandle] = deque()
        self._settling = threading.RLock()  # one thread at a time tells those who wait
        self._late: list[SaveHandle] = []  # committed, and on their way to farther tiers
        self._thread: threading.Thread | None = None
        self._ending = False  # close() was called: don't linger
        self._deadline = ExitDeadline()

    def add(self, handle: SaveHandle) -> None:
        """Takes over a handle whose save has begun."""
        with self._lock:
            try:
                self._todo.append(handle)
                self._changed.notify_all()
                needs_thread = not self._has_thread()
                started = needs_thread and self._start()
            except BaseException:  # an interrupt: nobody keeps the handle, and its save gives up
                if not self._has_thread() and handle in self._todo:
                    self._todo.remove(handle)
                del handle
                raise
        if needs_thread and not started:
            self._complete_all()  # slow, but the save ends as its handle says

    def _has_thread(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> bool:
        """Called under the lock, without which the new thread does nothing.

        The thread is noted before it starts: an interrupt may come right after the start.
        """
        thread = threading.Thread(target=self._run, name="df-complete", daemon=False)
        self._thread = thread
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            self._thread = None
            _log_error("no thread can wait for the save, so save() does: %s", error)
            return False
        return True

    def failed(self, handle: SaveHandle, error: BaseException) -> None:
        """Counts a save that failed, lets its futures raise, and logs it."""
        with self._lock:
            self.failed_saves += 1
            self._unraised = self._unraised or error
            count = 0 if self._has_saved else self.failed_saves
            if not self._has_saved:
                self._first_failed = self._first_failed or (handle, error)
        handle.fail(error)
        more = f". None has succeeded yet: {count} of {count} have failed" if count else ""
        code = getattr(error, "code", type(error).__name__)  # docs/errors.md lists the codes
        cause = str(error).removeprefix(f"save step {handle.step}: ")
        _log_error("save of step %d failed (%s): %s%s", handle.step, code, cause, more)

    def failed_at_once(self, handle: SaveHandle, error: BaseException) -> None:
        """As failed(), for a save that has not begun; the thread settles it, too."""
        self.failed(handle, error)
        if self._settled is not None:
            self.add(handle)

    def take_unraised(self) -> BaseException | None:
        """The first failure since the last call; the caller will raise it."""
        with self._lock:
            error, self._unraised = self._unraised, None
            if error is not None and self._first_failed is not None:
                self._first_failed[0].told = True
        return error

    def untold(self) -> BaseException | None:
        """The first failure, if no save has ever succeeded and nobody was told of it."""
        with self._lock:
            if self._first_failed is None or self._first_failed[0].told:
                return None
            return self._first_failed[1]

    def in_flight(self) -> list[SaveHandle]:
        """Handles whose futures are not complete, oldest first."""
        with self._lock:
            return [each for each in (*self._late, *self._todo) if not each.durable.done()]

    def join(self) -> None:
        """Returns once nothing is in flight."""
        self._wait_until_idle(None)

    def join_or_give_up(self) -> None:
        """Ends the thread once no save is in flight; fails the rest after EXIT_SECONDS_MAX."""
        thread = self._thread
        with self._lock:
            self._ending = True
            self._changed.notify_all()
        if thread is threading.current_thread():
            return
        if not self._wait_until_idle(EXIT_SECONDS_MAX):
            self.gave_up = True
            self._deadline.over = True
        if thread is not None and thread.is_alive():
            thread.join(_JOIN_SECONDS)

    def _wait_until_idle(self, seconds_max: float | None) -> bool:
        if self._thread is threading.current_thread():
            return False
        with self._lock:
            has_thread = self._has_thread()
            if not has_thread:
                self._thread = None  # a thread that an interrupt kept from starting sees this
        if not has_thread:
            self._complete_all()
        with self._changed:
            return self._changed.wait_for(lambda: not self._todo, seconds_max)

    def _run(self) -> None:
        with self._lock:
            if self._thread is not threading.current_thread():
                return  # an interrupt came while it was started, and another thread replaced it
        while True:
            self._complete_all()
            self.settle_late()
            with self._changed:
                if not self._todo and not self._lingered():
                    self._thread = None
                    return

    def _lingered(self) -> bool:
        """Whether another save came before the program ended or the time was over, or saves are
        still on their way to tiers."""
        ends = time.monotonic() + (_LATE_SECONDS if self._late else _LINGER_SECONDS)
        while not (self._todo or self._ending):
            if time.monotonic() > ends:
                return bool(self._late)
            if not threading.main_thread().is_alive():
                return False
            self._changed.wait(_END_NOTICED_SECONDS)
        return bool(self._todo)

    def settle_late(self) -> None:
        """Gives the handles that farther tiers have settled their last result."""
        with self._settling:
            with self._lock:
                late = list(self._late)
            arrived = [handle for handle in late if self._has_arrived(handle)]
            if arrived:
                with self._lock:
                    self._late = [handle for handle in self._late if handle not in arrived]

    def fail_late(self) -> None:
        """Ends the wait for tiers: the engine is not asked any more."""
        with self._lock:
            late, self._late = self._late, []
        for handle in late:
            if not handle.durable.done():
                handle.fail(ExitDeadlineError(f"step {handle.step} was still on its way to a tier"))

    def _has_arrived(self, handle: SaveHandle) -> bool:
        if handle.durable.done():  # a thread that waits for it has looked
            return True
        arrived = handle.arrived(self._saved)
        if arrived and self._settled is not None:
            self._settled(handle)
        return arrived

    def _complete_all(self) -> None:
        while True:
            with self._lock:
                if not self._todo:
                    return
                handle = self._todo[0]
            try:
                self._complete(handle)
            finally:
                with self._changed:
                    self._todo.popleft()
                    self._changed.notify_all()

    def _complete(self, handle: SaveHandle) -> None:
        try:
            if not handle.durable.done() and self._was_committed(handle):
                if not self._has_arrived(handle):
                    with self._lock:
                        self._late.append(handle)
                    if self._waiting is not None:
                        self._waiting()
            elif self._settled is not None:
                self._settled(handle)
        finally:
            self.settle_late()

    def _was_committed(self, handle: SaveHandle) -> bool:
        self._deadline.begin()
        try:
            handle.complete(self._deadline)
            with self._lock:
                self._has_saved, self._first_failed = True, None
            self._look_at_values(handle)
            _warn_of_replicas(handle)
            return True
        except BaseException as error:
            self.gave_up = self.gave_up or isinstance(error, ExitDeadlineError)
            self.failed(handle, error)
            return False

    def _look_at_values(self, handle: SaveHandle) -> None:
        """Warns once of values that are NaN or infinite; again after a save without any."""
        values = handle.status().non_finite
        if values and self._finite:
            _log(
                logging.WARNING,
                "step %d holds %d values that are NaN or infinite; `deepfreeze show` lists them",
                handle.step,
                values,
            )
        self._finite = not values


def _warn_of_replicas(handle: SaveHandle) -> None:
    diverged = handle.status().diverged
    if diverged:
        _log(
            logging.WARNING,
            "step %d is not the same on all ranks: %s",
            handle.step,
            named_divergences(diverged),
        )


def named_divergences(diverged: Sequence[tuple[str, Sequence[int]]]) -> str:
    """Text that names the first few tensors and their ranks."""
    named = [
        f"{shown(key)} (rank {', '.join(map(str, ranks[:_NAMED_MAX]))}"
        f"{', ...' if len(ranks) > _NAMED_MAX else ''})"
        for key, ranks in diverged[:_NAMED_MAX]
    ]
    more = len(diverged) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _log_error(text: str, *arguments: object) -> None:
    _log(logging.ERROR, text, *arguments)


def _log(level: int, text: str, *arguments: object) -> None:
    # A handler that raises must end neither the thread nor the training.
    with contextlib.suppress(Exception):
        log.log(level, text, *arguments)
