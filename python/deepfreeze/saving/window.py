"""The window of one save: shows whether a tensor changed before it was captured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any


class Watch:
    """Tensors of one guard, and their version counters and addresses when they were recorded."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        """Watches tensors, each for the entry with its key."""
        self._keys = [key for key, _ in pairs]
        self._tensors = [tensor for _, tensor in pairs]
        self.record()

    def record(self) -> None:
        """Records the present versions and addresses for the capture."""
        self._versions, self._places = self._now()

    def _now(self) -> tuple[list[int], list[int]]:
        tensors = self._tensors
        return [each._version for each in tensors], [each.data_ptr() for each in tensors]

    def changed(self) -> list[str]:
        """The keys of tensors that were written or moved since record()."""
        try:
            versions, places = self._now()
        except Exception:  # swapped with a tensor without memory: counts as a change
            return list(dict.fromkeys(self._keys))
        if versions == self._versions and places == self._places:
            return []
        found = zip(versions, places, strict=True)
        before = zip(self._versions, self._places, strict=True)
        return [key for key, a, b in zip(self._keys, found, before, strict=True) if a != b]

    def same_as(self, other: Watch) -> bool:
        """Whether both watch the same tensors, and found the same versions and addresses."""
        return self._found() == other._found()

    def _found(self) -> set[tuple[str, int, int]]:
        """As a set, since a first walk may find a tensor and its detach(): both are one here."""
        return set(zip(self._keys, self._versions, self._places, strict=True))


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
