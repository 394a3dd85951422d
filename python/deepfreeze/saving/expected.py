"""The room that the first save will need, as attached targets become known."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from deepfreeze.state.contracts import Guard
from deepfreeze.state.entry import HOST

_WORTH = 1.25  # times the bytes told before: of many optimizers, not each is told


@dataclass
class ExpectedRoom:
    """Bytes by guard, each counted once, when all that it guards is there.

    Modules do not count: whether they will be saved is not known.
    """

    rank_count: int
    devices: set[int] = field(default_factory=set)
    bytes: int = 0
    _unknown: dict[int, Guard] = field(default_factory=dict)  # by their numbers
    _storages: dict[int, int] = field(default_factory=dict)  # bytes that are counted of each
    _updates: Counter[int] = field(default_factory=Counter)
    _told: int = 0

    def attached(self, guard: Guard) -> None:
        """Counts a guard, now or when its state is there."""
        if guard.mode != "module":
            self._unknown[guard.number] = guard
            self._count(guard, is_whole=False)

    def keep(self, numbers: set[int]) -> None:
        """All other guards were detached, and are not waited for."""
        self._unknown = {each: guard for each, guard in self._unknown.items() if each in numbers}

    def look(self) -> None:
        """Counts the guards whose state is there."""
        for guard in list(self._unknown.values()):
            self._count(guard, is_whole=False)

    def before_update(self, number: int) -> None:
        """Called before each update of a guard: before the second, its state is whole."""
        guard = self._unknown.get(number)
        if guard is None:
            return
        self._updates[number] += 1
        if self._updates[number] > 1:
            self._count(guard, is_whole=True)

    def _count(self, guard: Guard, *, is_whole: bool) -> None:
        found = guard.memory(is_whole=is_whole)
        if not found and not is_whole:
            return
        self._unknown.pop(guard.number, None)
        for each in found:
            before = self._storages.get(each.storage, 0)
            now = min(before + each.bytes, each.storage_bytes)
            self._storages[each.storage] = now
            self.bytes += (now - before) // (each.copies or self.rank_count)
            if each.device != HOST:
                self.devices.add(each.device)

    def take_news(self) -> int | None:
        """The bytes, which count as told then; None unless there is enough news, or all."""
        least = _WORTH * self._told if self._unknown else self._told + 1
        if self.bytes < max(1, least):
            return None
        self._told = self.bytes
        return self.bytes
