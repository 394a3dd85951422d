"""Capture that continues after save() has returned: its guards, fences and windows."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from deepfreeze import _core
from deepfreeze.errors import CheckpointError
from deepfreeze.frameworks.in_use import devices
from deepfreeze.frameworks.in_use.guards import guard_maker
from deepfreeze.saving.calls import Calls
from deepfreeze.saving.capture import Capture
from deepfreeze.saving.expected import ExpectedRoom
from deepfreeze.saving.guards import Guards, Watch
from deepfreeze.state.contracts import Mode
from deepfreeze.state.entry import HOST

log = logging.getLogger("deepfreeze")

_MODES = ("window", "after_update")


@dataclass
class _Early:
    """A capture that begins before its save(), one guard at a time."""

    owners: object  # keep the memory alive that the engine copies
    table: _core.Table
    watches: dict[int, Watch]
    begun: bool = False
    released: set[int] = field(default_factory=set)


class Window:
    """One save from its return until all of it was compared. For any thread, with the GIL."""

    def __init__(
        self,
        owners: object,
        watches: dict[int, Watch],
        closed: Callable[[Window, Sequence[str]], None],
    ) -> None:
        self._owners = owners  # keep the memory alive that the engine copies
        self._watches = watches
        self._closed = closed
        self._torn: list[str] = []
        self._lock = threading.RLock()  # a signal handler may come here while its thread holds it

    @property
    def guards(self) -> Iterable[int]:
        """The guards with tensors that are not compared yet."""
        return tuple(self._watches)

    def guarded_by(self, guard: int) -> bool:
        """Whether the fence of `guard` has to wait.

        False while another thread compares it: a change would seem to have come before.
        """
        with self._lock:
            return guard in self._watches

    def compare(self, guard: int) -> None:
        """Called once the guard's tensors are no longer read, and before they change."""
        with self._lock:
            watch = self._watches.get(guard)
            if watch is None:
                return
            self._torn += watch.changed()
            del self._watches[guard]  # only now: an interrupt would lose the result

    def finish(self) -> list[str]:
        """Compares the rest, after the last copy; returns the keys of all torn entries."""
        with self._lock:
            for guard in self.guards:
                self.compare(guard)
            return self._torn

    def let_go(self) -> None:
        """Releases the state's memory: all of it is copied, but not yet confirmed."""
        with self._lock:
            self._owners = None

    def over(self, torn: Sequence[str]) -> None:
        """Releases the state's memory: nothing reads it any more."""
        with self._lock:
            self._watches = {}
            self._owners = None
        self._closed(self, torn)


class LazyCapture:
    """Captures parts of a state later, and makes writers wait for that.

    For the training's thread.
    """

    def __init__(self, engine: _core.Engine, calls: Calls, rank_count: int) -> None:
        self._engine = engine
        self._calls = calls
        self._guards = Guards()
        self._room: ExpectedRoom | None = ExpectedRoom(rank_count)  # None from a save on
        self._window: Window | None = None  # of the newest save, until it is captured
        self._early: _Early | None = None
        self._owner = os.getpid()
        self._devices: set[int] = set()

    def attach(self, target: object, mode: Mode) -> None:
        """Guards an optimizer or a module."""
        if mode not in _MODES:
            raise ValueError(f"attach: mode {mode!r} is not one of {', '.join(_MODES)}")
        known = self._guards.mode_of(target)
        if known is not None:
            if known in (mode, "module"):
                return
            self.detach(target)
        make = guard_maker(target, mode, self.fence, self._updated)
        guard = self._guards.add(make)
        if self._room is not None:
            self._tell(self._room, partial(self._room.attached, guard))

    def detach(self, target: object | None) -> None:
        """Stops guarding one target, or all of them."""
        self.fence_all()
        self.discard_early()
        self._guards.remove(target)
        if self._room is not None:
            self._room.keep({guard.number for guard in self._guards})

    def watch(self, capture: Capture) -> tuple[dict[int, Watch], bool]:
        """Gives entries their guards: guarded entries are captured after save() has returned.

        The tensors to watch, and whether all entries of the capture before have kept their guards.
        """
        self._room = None
        watches, kept = self._guards.watch(capture)
        if not kept:
            self._devices = {entry.device for entry in capture.entries if entry.device != HOST}
        return watches, kept

    @property
    def is_on_devices(self) -> bool:
        """Whether some of the last watched state is on devices."""
        return bool(self._devices)

    def streams(self) -> list[tuple[int, int]]:
        """The current stream of each device that the last watched state lies on."""
        if not self._devices:
            return []
        return devices.streams_of(self._devices)

    def expect(self) -> None:
        """Has memory for the first save taken beside training, as far as its size is known."""
        if self._room is not None:
            self._tell(self._room, self._room.look)

    def _tell(self, room: ExpectedRoom, look: Callable[[], None]) -> None:
        """Also in the hook of an update, on any thread."""
        try:
            look()
            size = room.take_news()
            if size is not None:
                self._engine.expect(size, sorted(room.devices))
        except Exception as error:  # an update must not raise: the save takes the memory
            log.debug("no memory is taken before the first save: %r", error)

    # Fences

    def fence(self, guard: int) -> None:
        """Before the guard's tensors change: returns when they are copied, and compares them.

        On a device it makes the current stream wait for the copies instead.
        """
        window = self._window
        if os.getpid() != self._owner:
            return
        is_in_graph = devices.is_capturing()
        self._guards.note_hook(guard, is_in_graph)
        room = self._room
        if room is not None and not is_in_graph:
            self._tell(room, partial(room.before_update, guard))
        if self._early is not None and self._early.begun:
            self._engine.fence(guard, self.streams())
        if window is not None and window.guarded_by(guard):
            self._engine.fence(guard, self.streams())
            self._calls.in_fence(window.compare, guard)

    def fence_all(self) -> None:
        """Fences all guards, before anything guarded changes."""
        if os.getpid() != self._owner:
            return
        self.discard_early()  # its save must not have values from before this change
        window = self._window
        if window is None:
            return
        self._engine.fence_all(self.streams())
        for guard in window.guards:
            self._calls.in_fence(window.compare, guard)

    def open_window(self, owners: object, watches: dict[int, Watch]) -> Window:
        """Opens the window of a save that begins: from now on fences wait for it."""
        self._window = Window(owners, watches, self._closed)
        return self._window

    def _closed(self, window: Window, torn: Sequence[str]) -> None:
        """Called by any thread when a window closes."""
        if self._window is window:
            self._window = None
        if torn:
            self._tore(torn)

    def _tore(self, keys: Sequence[str]) -> None:
        new = sorted(set(keys) - self._guards.eager)
        self._guards.eager.update(new)
        if new:
            with contextlib.suppress(Exception):  # a handler that raises must not end the save
                log.warning(
                    "%s changed while captured, without a fence: save() copies %s from now on",
                    ", ".join(new[:8]) + (f" and {len(new) - 8} more" if len(new) > 8 else ""),
                    "it" if len(new) == 1 else "them",
                )

    # Early capture: mode "after_update"

    @property
    def captures_early(self) -> bool:
        """Whether a target is attached in mode after_update."""
        return any(guard.mode == "after_update" for guard in self._guards)

    def arm(self, owners: object, table: _core.Table, watches: dict[int, Watch]) -> None:
        """The next step will be saved: each of its updates begins the capture of its tensors."""
        self.discard_early()
        self._early = _Early(owners, table, watches)

    def _updated(self, guard: int) -> None:
        early = self._early
        if early is None or guard not in early.watches or os.getpid() != self._owner:
            return
        if guard in early.released:
            self.discard_early()  # updated twice: the captured values are out of date
            return
        if not early.begun and not self._begin(early):
            return
        self._release(early, guard)

    def _begin(self, early: _Early) -> bool:
        try:
            early.begun = self._engine.begin_capture(early.table)
        except CheckpointError as error:  # the save will report it: backward() must not raise
            log.debug("no early capture: %s", error)
        if not early.begun:
            self._early = None  # the save before still needs the memory: the window captures it
        return early.begun

    def _release(self, early: _Early, guard: int) -> None:
        early.watches[guard].record()
        early.released.add(guard)
        self._engine.release(guard, self.streams())

    def settle_early(self, watches: dict[int, Watch]) -> None:
        """The save has come: it uses the early capture, unless that is out of date."""
        early, self._early = self._early, None
        if early is None or not early.begun:
            self._engine.discard_capture()  # left by a save() that was interrupted
            return
        for guard in watches.keys() - early.released:
            if guard in early.watches:
                self._release(early, guard)
        same = early.watches.keys() == watches.keys() and all(
            early.watches[guard].same_as(watches[guard]) for guard in watches
        )
        if not same:
            self._engine.discard_capture()

    def discard_early(self) -> None:
        """Discards the early capture of a save that has not come."""
        early, self._early = self._early, None
        if early is not None and early.begun and os.getpid() == self._owner:
            self._engine.discard_capture()
