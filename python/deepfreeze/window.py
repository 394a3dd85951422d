"""The witness of one save: what shows that a tensor changed before it was captured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepfreeze.capture import Capture


def _marks(tensors: Iterable[Any]) -> list[tuple[int, int]]:
    return [(tensor._version, tensor.data_ptr()) for tensor in tensors]


class Watch:
    """Tensors of one guard, and their version counters and addresses when they were recorded."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Watches tensors, each for the sake of the entry that is called by its key."""
        self._keys, self._tensors = map(list, zip(*pairs, strict=True))
        self._marks = _marks(self._tensors)

    def record(self) -> None:
        """Takes the tensors as they are now for what is captured."""
        self._marks = _marks(self._tensors)

    def changed(self) -> list[str]:
        """The keys of tensors that were written, or moved, since."""
        try:
            now = _marks(self._tensors)
        except Exception:  # swapped with one that has no memory: it can't be told from a change
            return list(dict.fromkeys(self._keys))
        if now == self._marks:
            return []
        pairs = zip(self._keys, now, self._marks, strict=True)
        return [key for key, found, mark in pairs if found != mark]

    def same_as(self, other: Watch) -> bool:
        """Whether both watch the same tensors, and found them alike."""
        return self._keys == other._keys and self._marks == other._marks


class Window:
    """One save from its return until all of it was compared. For any thread, with the GIL."""

    def __init__(
        self,
        capture: Capture,
        watches: dict[int, Watch],
        closed: Callable[[Window, Sequence[str]], None],
    ) -> None:
        self._capture: Capture | None = capture  # keeps alive what the engine copies
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
            watch = self._watches.pop(guard, None)
            if watch is not None:
                self._torn += watch.changed()

    def finish(self) -> list[str]:
        """Compares the rest, after the last copy; the keys of all that were torn."""
        with self._lock:
            for guard in self.guards:
                self.compare(guard)
            return self._torn

    def over(self, torn: Sequence[str]) -> None:
        """Lets the state's memory go: nothing reads it any more."""
        with self._lock:
            self._watches = {}
            self._capture = None
        self._closed(self, torn)
