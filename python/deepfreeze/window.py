"""The witness of one save: what shows that a tensor changed before it was captured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any


class Watch:
    """Tensors of one guard, and their version counters and addresses when they were recorded."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        """Watches tensors, each for the sake of the entry that is called by its key."""
        self._keys = [key for key, _ in pairs]
        self._tensors = [tensor for _, tensor in pairs]
        self.record()

    def record(self) -> None:
        """Takes the tensors as they are now for what is captured."""
        self._versions, self._places = self._now()

    def _now(self) -> tuple[list[int], list[int]]:
        tensors = self._tensors
        return [each._version for each in tensors], [each.data_ptr() for each in tensors]

    def changed(self) -> list[str]:
        """The keys of tensors that were written, or moved, since."""
        try:
            versions, places = self._now()
        except Exception:  # swapped with one that has no memory: it can't be told from a change
            return list(dict.fromkeys(self._keys))
        if versions == self._versions and places == self._places:
            return []
        found = zip(versions, places, strict=True)
        before = zip(self._versions, self._places, strict=True)
        return [key for key, a, b in zip(self._keys, found, before, strict=True) if a != b]

    def same_as(self, other: Watch) -> bool:
        """Whether both watch the same tensors, and found them alike."""
        return self._found() == other._found()

    def _found(self) -> set[tuple[str, int, int]]:
        """Without doubles: of a tensor and its detach(), which a first walk finds, both are one."""
        return set(zip(self._keys, self._versions, self._places, strict=True))


class Window:
    """One save from its return until all of it was compared. For any thread, with the GIL."""

    def __init__(
        self,
        owners: object,
        watches: dict[int, Watch],
        closed: Callable[[Window, Sequence[str]], None],
    ) -> None:
        self._owners = owners  # keep alive what the engine copies
        self._watches = watches
        self._closed = closed
        self._torn: list[str] = []
        self._lock = threading.RLock()  # a signal handler may come here while its thread holds it

    @property
    def guards(self) -> Iterable[int]:
        """Those of which something is not compared yet."""
        return tuple(self._watches)

    def guarded_by(self, guard: int) -> bool:
        """Whether the fence of `guard` has something to wait for.

        Not while another thread compares it: a change would look as if it had come before.
        """
        with self._lock:
            return guard in self._watches

    def compare(self, guard: int) -> None:
        """Once nothing of the guard's tensors is read any more, and before they change."""
        with self._lock:
            watch = self._watches.get(guard)
            if watch is None:
                return
            self._torn += watch.changed()
            del self._watches[guard]  # not before: an interrupt would lose what it says

    def finish(self) -> list[str]:
        """Compares the rest, after the last copy; the keys of all that were torn."""
        with self._lock:
            for guard in self.guards:
                self.compare(guard)
            return self._torn

    def let_go(self) -> None:
        """Holds the state's memory no more: all of it is copied, but not yet confirmed."""
        with self._lock:
            self._owners = None

    def over(self, torn: Sequence[str]) -> None:
        """Lets the state's memory go: nothing reads it any more."""
        with self._lock:
            self._watches = {}
            self._owners = None
        self._closed(self, torn)
