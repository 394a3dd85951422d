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

    def mode_of(self, target: object) -> Mode | None:
        """How `target` is attached, if it is."""
        return next((guard.mode for guard in self._all if guard.target is target), None)

    def remove(self, target: object | None) -> None:
        """Detaches one target, or all."""
        gone = [guard for guard in self._all if target is None or guard.target is target]
        for guard in gone:
            guard.detach()
            self._all.remove(guard)

    def watch(self, entries: Sequence[Entry]) -> dict[int, Watch]:
        """Gives entries their guard; returns what to watch of each guard until all is copied."""
        guarded = self._by_address()
        if not guarded:
            return {}
        watched: dict[int, list[tuple[str, Any]]] = {}
        lazy: dict[int, str] = {}
        for entry in entries:
            if entry.bytes < LAZY_BYTES_MIN or entry.key in self.eager:
                continue
            found = guarded.get(entry.address)
            if found is None or entry.bytes > found[1].nbytes:  # more than this guard stands before
                continue
            guard, tensor = found
            entry.guard = guard.number
            lazy[entry.address] = entry.key
            pairs = watched.setdefault(guard.number, [])
            pairs.append((entry.key, tensor))
            for own in entry.tensors:  # it may count its versions apart, as .data does
                if own is not tensor:
                    pairs.append((entry.key, own))
        for guard in self._all:
            if guard.number in watched:
                watched[guard.number] += _followers(guard, lazy)
        return {number: Watch(pairs) for number, pairs in watched.items()}

    def _by_address(self) -> dict[int, tuple[Guard, Any]]:
        found: dict[int, tuple[Guard, Any]] = {}
        spans: list[tuple[int, int, int]] = []
        alone = len(self._all) == 1  # whatever is shared has one guard
        # Modules last: they leave to optimizers what those have too.
        for guard in sorted(self._all, key=lambda guard: guard.mode == "module"):
            for tensor in guard.tensors():
                low = tensor.data_ptr()
                known = found.setdefault(low, (guard, tensor))
                if alone:
                    continue
                if known[0] is guard or guard.mode != "module" or known[1].shape != tensor.shape:
                    spans.append((low, low + span_bytes(tensor), guard.number))
        for low in _shared(spans):
            found.pop(low, None)
        return found


def span_bytes(tensor: Any) -> int:
    """Bytes of memory from the first to the last element."""
    if tensor.is_contiguous():
        return int(tensor.nbytes)
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return int(tensor.element_size() * (1 + sum((size - 1) * step for size, step in steps)))


def _shared(spans: list[tuple[int, int, int]]) -> set[int]:
    """Where tensors begin that share memory with one of another guard: neither knows the other."""
    shared: set[int] = set()
    group: list[tuple[int, int, int]] = []
    high = 0
    for span in sorted(spans):
        if span[0] >= high:
            shared |= _if_mixed(group)
            group = []
        group.append(span)
        high = max(high, span[1])
    return shared | _if_mixed(group)


def _if_mixed(group: list[tuple[int, int, int]]) -> set[int]:
    mixed = len(group) > 1 and len({guard for _, _, guard in group}) > 1
    return {low for low, _, _ in group} if mixed else set()


def _followers(guard: Guard, lazy: dict[int, str]) -> list[tuple[str, Any]]:
    pairs = [(lazy.get(leader.data_ptr()), small) for small, leader in guard.followers()]
    return [(key, small) for key, small in pairs if key is not None]
