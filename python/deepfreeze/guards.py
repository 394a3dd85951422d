"""What attach() guards, and which entries of a save may therefore be captured after save()."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from deepfreeze.adapters.base import Entry
from deepfreeze.window import Watch

LAZY_BYTES_MIN = 64 * 1024  # less is copied before save() returns: that is cheaper than to watch it

Mode: TypeAlias = str  # "window" or "after_update"; of modules "module"


class Guard(Protocol):
    """Stands before the changes of some tensors. Its number is that of its native fence."""

    number: int
    target: object
    mode: Mode

    def tensors(self) -> Sequence[Any]:
        """The tensors that it guards, as they are now."""

    def followers(self) -> Sequence[tuple[Any, Any]]:
        """Pairs of a small tensor and one that changes whenever the first does."""

    def detach(self) -> None:
        """Takes its hooks back."""


@dataclass
class Guards:
    """All guards of one checkpointer."""

    eager: set[str] = field(default_factory=set)  # keys that were found torn once
    _all: list[Guard] = field(default_factory=list)
    _numbers: int = 0

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._all)

    def add(self, make: Callable[[int], Guard]) -> None:
        """Adds a guard that is made with a number of its own."""
        self._numbers += 1
        self._all.append(make(self._numbers))

    def knows(self, target: object) -> bool:
        """Whether `target` is attached."""
        return any(guard.target is target for guard in self._all)

    def remove(self, target: object | None) -> None:
        """Detaches one target, or all."""
        gone = [guard for guard in self._all if target is None or guard.target is target]
        for guard in gone:
            guard.detach()
            self._all.remove(guard)

    def watch(self, entries: Sequence[Entry]) -> dict[int, Watch]:
        """Gives entries their guard; returns what to watch of each guard until all is copied."""
        guarded = self._by_address()
        watches: dict[int, Watch] = {}
        lazy: dict[int, str] = {}
        for entry in entries:
            found = guarded.get(entry.address)
            if found is None or entry.bytes < LAZY_BYTES_MIN or entry.key in self.eager:
                continue
            guard, tensor = found
            if entry.bytes > tensor.nbytes:
                continue  # it holds more than what this guard stands before
            entry.guard = guard.number
            lazy[entry.address] = entry.key
            watches.setdefault(guard.number, Watch()).add(entry.key, tensor)
        for guard in self._all:
            if guard.number in watches:
                _add_followers(guard, lazy, watches[guard.number])
        return watches

    def _by_address(self) -> dict[int, tuple[Guard, Any]]:
        found: dict[int, tuple[Guard, Any]] = {}
        shared: set[int] = set()
        # Modules last: they leave to optimizers what those have too.
        for guard in sorted(self._all, key=lambda guard: guard.mode == "module"):
            for tensor in guard.tensors():
                address = tensor.data_ptr()
                known = found.setdefault(address, (guard, tensor))
                if known[0] is not guard and guard.mode != "module":
                    shared.add(address)  # two stand before its changes: neither knows the other
        for address in shared:
            del found[address]
        return found


def _add_followers(guard: Guard, lazy: dict[int, str], watch: Watch) -> None:
    for small, leader in guard.followers():
        key = lazy.get(leader.data_ptr())
        if key is not None:
            watch.add(key, small)
