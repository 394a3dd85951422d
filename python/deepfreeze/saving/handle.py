"""The handle of a save in flight."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

from deepfreeze import _core
from deepfreeze.errors import CheckpointError, CheckpointTimeoutError, TornCaptureError

log = logging.getLogger("deepfreeze")

Level = Literal["captured", "local", "protected", "durable"]
LEVELS: tuple[Level, ...] = ("captured", "local", "durable")  # those that have a future
EXIT_SECONDS_MAX = 600.0  # how long the end of the interpreter waits for a save in flight
_POLL_SECONDS = 0.5  # how soon a waiting thread notices that the interpreter is ending


@dataclass(frozen=True)
class SaveStatus:
    """How far a save has come."""

    step: int
    bytes: int  # of the data section
    bytes_copied: int  # so far
    bytes_written: int
    bytes_shared: int  # of files that an earlier checkpoint has, too: not written
    guarded_bytes: int  # captured after save() returned
    stall_seconds: float  # inside save()
    fence_seconds: float  # blocked in its fences since then
    copy_seconds: float  # these four are sums over the engine's threads
    checksum_seconds: float
    write_seconds: float
    commit_seconds: float
    local_seconds: float  # from save() until committed; 0 before
    durable_seconds: float  # the same on the last tier
    protected_seconds: float  # the same until all nodes had their parity of it
    early: bool  # its capture began before save(), inside backward
    captured: bool
    local: bool
    durable: bool
    protected: bool  # see Checkpointer(protect=)
    non_finite: int | None  # NaN and infinite values, once written; None without statistics
    torn: tuple[str, ...]  # keys that changed while they were captured
    # Keys whose values should be equal on all ranks and are not, once durable, each with the ranks
    # that differ from the majority (both, of two). See Checkpointer(audit_saves=).
    diverged: tuple[tuple[str, tuple[int, ...]], ...]
    # Path and state of each farther tier, as in Checkpointer(tiers=): "not meant", "waiting",
    # "committed" or "left out". On ranks that do not commit, as far as they have seen it.
    tiers: tuple[tuple[str, str], ...]
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
        """Returns when the level is reached; raises the save's error, or TimeoutError.

        "protected": all nodes of the job have their parity of this checkpoint. It raises
        CheckpointError without Checkpointer(protect=), or if a newer save came first. A rank that
        does not lead its node also raises if the checkpoint was deleted within a second.
        """
        if level not in (*LEVELS, "protected"):
            raise ValueError(f"level {level!r}: not captured, local, protected or durable")
        check_process(self._owner)
        if level == "protected":
            return self._await_parity(timeout)
        future: Future[int] = getattr(self, level)
        try:
            if level == "durable":
                self._await_tiers(timeout)
                future.result(0)
            else:
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

    def _await_tiers(self, timeout: float | None) -> None:
        """Once the program has ended, no thread of ours looks at the tiers: this one does."""
        ends = None if timeout is None else time.monotonic() + timeout
        while not self.durable.done():
            left = _POLL_SECONDS if ends is None else min(_POLL_SECONDS, ends - time.monotonic())
            if left <= 0:
                return
            with contextlib.suppress(FutureTimeoutError):
                self.durable.exception(left)
            has_ended = not threading.main_thread().is_alive()
            if has_ended and self.local.done() and self.local.exception() is None:
                self.arrived()

    def _await_parity(self, timeout: float | None) -> None:
        ends = None if timeout is None else time.monotonic() + timeout
        self.wait("local", timeout)
        assert self._native is not None
        while True:  # in slices, between which signals of the process are seen
            left = _POLL_SECONDS if ends is None else min(_POLL_SECONDS, ends - time.monotonic())
            try:
                return self._native.wait("protected", max(0.0, left))
            except TimeoutError:
                if left == _POLL_SECONDS:
                    continue
                raise CheckpointTimeoutError(
                    f"step {self.step} is not protected after {timeout} s"
                ) from None

    def __repr__(self) -> str:
        return f"<SaveHandle of step {self.step}: {self._how_far()}>"

    def _how_far(self) -> str:
        if self.durable.done():
            error = self.durable.exception()
            if error is None:
                return "durable"
            is_saved = self.local.exception() is None  # and one of the farther tiers lacks it
            return f"{'local' if is_saved else 'failed'}: {type(error).__name__}: {error}"
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

    def complete(self, deadline: ExitDeadline) -> None:
        """Waits in the native engine, without the GIL, until the save is committed.

        arrived() sets the last future.
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

    def arrived(self, saved: Callable[[SaveHandle], None] | None = None) -> bool:
        """Whether it is known by now if the last tier has it; gives the last future its result.

        `saved` is called before that, so that its line in a log comes before the lines of a program
        that waits.
        """
        assert self._native is not None
        if self.durable.done():
            return True
        try:
            self._native.wait("durable", 0)
        except TimeoutError:
            return False
        except CheckpointError as error:  # it was left out; the save is none the worse
            with contextlib.suppress(InvalidStateError):  # another thread was faster
                self.durable.set_exception(error)
            return True
        if saved is not None:
            saved(self)
        with contextlib.suppress(InvalidStateError):
            self.durable.set_result(self.step)
        return True

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
    values["tiers"] = tuple(now.tiers)
    values["diverged"] = tuple((key, tuple(ranks)) for key, ranks in now.diverged)
    return SaveStatus(**values)


def _nothing_done(step: int, error: BaseException | None) -> SaveStatus:
    nothing: dict[str, Any] = {field.name: 0 for field in fields(SaveStatus)}
    nothing.update(
        early=False, captured=False, local=False, durable=False, protected=False, torn=(),
        step=step, error=error, non_finite=None, diverged=(), tiers=(),
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
