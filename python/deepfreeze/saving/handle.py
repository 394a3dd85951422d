"""The handle of a save in flight, and the thread that completes its futures."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

from deepfreeze import _core
from deepfreeze.base.names import shown
from deepfreeze.errors import CheckpointError, CheckpointTimeoutError, TornCaptureError

log = logging.getLogger("deepfreeze")

Level = Literal["captured", "local", "durable"]
LEVELS: tuple[Level, ...] = ("captured", "local", "durable")
EXIT_SECONDS_MAX = 600.0  # how long the end of the interpreter waits for a save in flight
_LINGER_SECONDS = 5.0  # how long the thread waits for another save
_END_NOTICED_SECONDS = 0.05  # how soon it then notices that the program has ended
_NAMED_MAX = 5  # tensors, and ranks of each, in a warning
_POLL_SECONDS = 0.5  # how soon a waiting thread notices that the interpreter is ending


@dataclass(frozen=True)
class SaveStatus:
    """How far a save has come."""

    step: int
    bytes: int  # of the data section
    bytes_copied: int  # so far
    bytes_written: int
    guarded_bytes: int  # captured after save() returned
    stall_seconds: float  # inside save()
    fence_seconds: float  # blocked in its fences since then
    copy_seconds: float  # these four are sums over the engine's threads
    checksum_seconds: float
    write_seconds: float
    commit_seconds: float
    durable_seconds: float  # from save() until committed; 0 before
    early: bool  # its capture began before save(), inside backward
    captured: bool
    local: bool
    durable: bool
    non_finite: int | None  # NaN and infinite values, once written; None without statistics
    torn: tuple[str, ...]  # keys that changed while they were captured
    # Keys whose values should be equal on all ranks and are not, once durable, each with the ranks
    # that differ from the majority (both, of two). See Checkpointer(audit_saves=).
    diverged: tuple[tuple[str, tuple[int, ...]], ...]
    error: BaseException | None


class SaveWindow(Protocol):
    """Compares a save's sources before it counts as captured. Called with the GIL held."""

    def finish(self) -> Sequence[str]:
        """Called after the last copy: returns the keys of torn entries."""

    def let_go(self) -> None:
        """The engine no longer reads the memory, but has not said yet which entries were torn."""

    def over(self, torn: Sequence[str]) -> None:
        """The engine no longer reads the memory; `torn` are all keys that it and finish() found."""


class SaveHandle:
    """One save. Its futures give the step, or raise the save's own error. For any thread."""

    def __init__(
        self, step: int, native: _core.SaveHandle | None, window: SaveWindow | None = None
    ) -> None:
        self.step = step
        self.captured: Future[int] = Future()
        self.local: Future[int] = Future()
        self.durable: Future[int] = Future()
        self.told = False  # whether somebody was told of the error
        self._native = native
        self._window = window
        self._owner = os.getpid()
        for future in (self.captured, self.local, self.durable):
            # A running future can't be cancelled: the save continues whatever becomes of its
            # futures.
            future.set_running_or_notify_cancel()

    def wait(self, level: Level = "durable", timeout: float | None = None) -> None:
        """Returns when the level is reached; raises the save's error, or TimeoutError."""
        if level not in LEVELS:
            raise ValueError(f"level {level!r}: not one of {', '.join(LEVELS)}")
        check_process(self._owner)
        future: Future[int] = getattr(self, level)
        try:
            future.result(timeout)
            return
        except FutureTimeoutError:
            if future.done():
                raise
            raise CheckpointTimeoutError(
                f"step {self.step} is not {level} after {timeout} s"
            ) from None
        finally:
            self.told = self.told or (future.done() and future.exception() is not None)

    def __repr__(self) -> str:
        return f"<SaveHandle of step {self.step}: {self._how_far()}>"

    def _how_far(self) -> str:
        if self.durable.done():
            error = self.durable.exception()
            return "durable" if error is None else f"failed: {type(error).__name__}: {error}"
        reached = [level for level in LEVELS if getattr(self, level).done()]
        return f"{reached[-1]}, not durable yet" if reached else "in flight, not captured yet"

    @property
    def begun(self) -> bool:
        """Whether the engine has taken it; if not, it failed at once."""
        return self._native is not None

    def status(self) -> SaveStatus:
        """Bytes, times and levels reached, now."""
        if self._native is None:
            error = self.durable.exception() if self.durable.done() else None
            return _nothing_done(self.step, error)
        return _status_of(self._native.status())

    def fail(self, error: BaseException) -> None:
        """Gives `error` to every future that has no result."""
        for level in LEVELS:
            future: Future[int] = getattr(self, level)
            if not future.done():
                future.set_exception(error)

    def let_go(self, waits: bool) -> None:
        """After a fence: releases the state's memory, so that nobody has to copy it before writing.

        Without `waits` only if everything is copied by now.
        """
        native, window = self._native, self._window
        if native is None or window is None:
            return
        # A fence takes over the background copier's work; the copier must have noticed that.
        with contextlib.suppress(TimeoutError, CheckpointError):
            native.wait_copied(_POLL_SECONDS if waits else 0)
            window.let_go()

    def complete(
        self, deadline: ExitDeadline, saved: Callable[[SaveHandle], None] | None = None
    ) -> None:
        """Waits in the native engine, without the GIL, and gives each future its result.

        `saved` is called before the last future is set, so that its line in a log comes before the
        lines of a program that waits.
        """
        native = self._native
        assert native is not None
        try:
            self._capture(native, deadline)
        except ExitDeadlineError:
            raise  # the engine may still read the memory that the window keeps alive
        except TornCaptureError as error:
            error.tensors = tuple(native.status().torn)
            self._end_window(error.tensors)
            raise
        except BaseException:
            self._end_window(())
            raise
        self._end_window(())
        self._reach("local", native, deadline)
        self._until(lambda seconds: native.wait("durable", seconds), deadline)
        if saved is not None:
            saved(self)
        self.durable.set_result(self.step)

    def _capture(self, native: _core.SaveHandle, deadline: ExitDeadline) -> None:
        if self._window is not None:
            self._until(native.wait_copied, deadline)
            native.confirm(list(self._window.finish()))
        self._reach("captured", native, deadline)

    def _end_window(self, torn: Sequence[str]) -> None:
        window, self._window = self._window, None
        if window is not None:
            window.over(torn)

    def _reach(self, level: Level, native: _core.SaveHandle, deadline: ExitDeadline) -> None:
        self._until(lambda seconds: native.wait(level, seconds), deadline)
        future: Future[int] = getattr(self, level)
        future.set_result(self.step)

    def _until(self, wait: Callable[[float], None], deadline: ExitDeadline) -> None:
        while True:
            try:
                return wait(_POLL_SECONDS)
            except TimeoutError:
                deadline.check(self.step)


def _status_of(now: _core.SaveStatus) -> SaveStatus:
    names = [field.name for field in fields(SaveStatus)]
    values = {name: getattr(now, name) for name in names}
    values["torn"] = tuple(now.torn)
    values["diverged"] = tuple((key, tuple(ranks)) for key, ranks in now.diverged)
    return SaveStatus(**values)


def _nothing_done(step: int, error: BaseException | None) -> SaveStatus:
    nothing: dict[str, Any] = {field.name: 0 for field in fields(SaveStatus)}
    nothing.update(
        early=False, captured=False, local=False, durable=False, torn=(), step=step, error=error,
        non_finite=None, diverged=(),
    )  # fmt: skip
    return SaveStatus(**nothing)


def check_process(owner: int) -> None:
    """CheckpointError in a forked child: threads and arena are the parent's."""
    if os.getpid() != owner:
        raise CheckpointError(
            "this checkpointer belongs to the process that opened it, not to a forked child",
            code="unsupported",
        )


class ExitDeadlineError(CheckpointTimeoutError):
    """The program has ended, and a save did not finish in the time that was left."""


class ExitDeadline:
    """Ends the wait for a save some time after the main thread has ended, or when told."""

    def __init__(self, seconds_max: float = EXIT_SECONDS_MAX) -> None:
        self._seconds_max = seconds_max
        self._ends: float | None = None
        self.over = False  # set by close(), which has waited long enough itself

    def begin(self) -> None:
        """Starts anew for one save: another thread may train on when the main thread has ended."""
        self._ends = None

    def check(self, step: int) -> None:
        """ExitDeadlineError if the deadline has passed."""
        if self.over:
            raise ExitDeadlineError(f"step {step} was not durable when close() gave up waiting")
        if threading.main_thread().is_alive():
            return
        if self._ends is None:
            self._ends = time.monotonic() + self._seconds_max
        if time.monotonic() > self._ends:
            raise ExitDeadlineError(
                f"step {step} was not durable {self._seconds_max} s after the program's end"
            )


class Completer:
    """Completes the futures of one checkpointer's saves in order, and counts failures.

    Its thread begins with a save and lingers for the next one, because starting a thread takes long
    on busy cores. It is no daemon, so the interpreter waits for it before it ends. It holds the
    handles, never the checkpointer.
    """

    def __init__(
        self,
        settled: Callable[[SaveHandle], None] | None = None,
        saved: Callable[[SaveHandle], None] | None = None,
    ) -> None:
        """The thread calls `saved` when a save becomes durable, and `settled` after each that
        ended.

        Neither may raise.
        """
        self.failed_saves = 0
        self._settled = settled
        self._saved = saved
        self._unraised: BaseException | None = None
        self._has_saved = False
        self._first_failed: tuple[SaveHandle, BaseException] | None = None  # until a save succeeds
        self._finite = True  # whether the last save held finite values only, as far as is known
        self.gave_up = False  # a save was still in flight when the exit deadline was over
        self._lock = threading.RLock()  # a signal handler may ask while its own thread holds it
        self._changed = threading.Condition(self._lock)
        self._todo: deque[SaveHandle] = deque()
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
        _log_error("save of step %d failed: %s%s", handle.step, error, more)

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
            return [handle for handle in self._todo if not handle.durable.done()]

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
            thread.join(4 * _POLL_SECONDS)

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
            with self._changed:
                if not self._todo and not self._lingered():
                    self._thread = None
                    return

    def _lingered(self) -> bool:
        """Whether another save came before the program ended or the time was over."""
        ends = time.monotonic() + _LINGER_SECONDS
        while not (self._todo or self._ending or time.monotonic() > ends):
            if not threading.main_thread().is_alive():
                return False
            self._changed.wait(_END_NOTICED_SECONDS)
        return bool(self._todo)

    def _complete_all(self) -> None:
        while True:
            with self._lock:
                if not self._todo:
                    return
                handle = self._todo[0]
            try:
                self._complete(handle)
                if self._settled is not None:
                    self._settled(handle)
            finally:
                with self._changed:
                    self._todo.popleft()
                    self._changed.notify_all()

    def _complete(self, handle: SaveHandle) -> None:
        if handle.durable.done():
            return  # it failed before it began
        self._deadline.begin()
        try:
            handle.complete(self._deadline, self._saved)
            with self._lock:
                self._has_saved, self._first_failed = True, None
            self._look_at_values(handle)
            _warn_of_replicas(handle)
        except BaseException as error:
            self.gave_up = self.gave_up or isinstance(error, ExitDeadlineError)
            self.failed(handle, error)

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
