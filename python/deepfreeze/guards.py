"""What attach() guards, and which entries of a save may therefore be captured after save()."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Protocol, TypeAlias

from deepfreeze.adapters.base import HOST, Entry
from deepfreeze.guard_memo import Asked, Found, GuardMemo, Pairs, RollCall, add_pairs
from deepfreeze.window import Watch

LAZY_BYTES_MIN = 64 * 1024  # of host memory; less is copied before save() returns

Mode: TypeAlias = str  # "window" or "after_update"; of modules "module"


class Guard(Protocol):
    """Stands before the changes of some tensors. Its number is that of its native fence."""

    number: int
    target: object
    mode: Mode

    def owned(self) -> list[Any]:
        """What it stands before, as it is now; also what is no tensor."""

    def roll_call(self, owned: Sequence[Any]) -> RollCall | None:
        """What tells, later, whether owned() is the same; None where it has to be looked at."""

    def can_watch(self, value: Any) -> bool:
        """Whether it is a tensor that can be captured later."""

    def follower_of(self, tensor: Any) -> Any:
        """A small tensor that changes whenever `tensor`, one of its own, does; or None."""

    def detach(self) -> None:
        """Takes its hooks back."""


@dataclass(frozen=True)
class _HeldMemory:
    """What a Watch asks of a tensor, of memory that its framework replaces and never writes."""

    address: int
    _version: int = 0

    def data_ptr(self) -> int:
        return self.address


def _may_have_guard(entry: Entry) -> bool:
    """Not what costs less to copy before save() returns than to watch.

    On a device that would hold up the work that comes behind save(), however small it is.
    """
    return not entry.is_held and (entry.device != HOST or entry.bytes >= LAZY_BYTES_MIN)


@dataclass
class Guards:
    """All guards of one checkpointer."""

    eager: set[str] = field(default_factory=set)  # keys that were found torn once
    # Whether hooks run at each update, by number, once one has. An update that is replayed out of a
    # CUDA graph runs none, whenever that was captured, and so has no fence.
    _hooked: dict[int, bool] = field(default_factory=dict)
    _all: list[Guard] = field(default_factory=list)
    _numbers: int = 0
    _held: int = 0  # the number of what is held, once there is some: no fence has to stand there
    _memo: GuardMemo | None = None  # of the last save

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
            self._hooked.pop(guard.number, None)
        self._memo = None

    def note_hook(self, number: int, captured: bool) -> None:
        """A hook runs before an update, which may be on its way into a graph."""
        self._hooked[number] = self._hooked.get(number, True) and not captured

    def _may_be_late(self, entry: Entry, guard: Guard) -> bool:
        """Not before it is known that there will be a fence; calls of fence() are the user's."""
        if entry.device == HOST or guard.mode == "module":
            return True
        return self._hooked.get(guard.number, False)

    def watch(self, entries: Sequence[Entry], tensors: Sequence[Sequence[Any]]) -> dict[int, Watch]:
        """Gives entries their guard; returns what to watch of each guard until all is copied.

        `tensors`: of each entry, those whose memory it is.
        """
        for entry in entries:
            entry.guard = 0
        watched = self._watch_held(entries)
        if self._all:
            places = [place for place, entry in enumerate(entries) if _may_have_guard(entry)]
            found = self._watch_guarded(
                [entries[place] for place in places], [tensors[place] for place in places]
            )
            watched |= found
        return {number: Watch(pairs) for number, pairs in watched.items()}

    def _watch_guarded(
        self, entries: Sequence[Entry], tensors: Sequence[Sequence[Any]]
    ) -> dict[int, Pairs]:
        """As the last time, where all is as it was."""
        owned = [guard.owned() for guard in self._all]
        numbers = [guard.number for guard in self._all]
        asked = Asked.about(numbers, self._hooked, self.eager, entries)
        known = None if self._memo is None else self._memo.again(asked, owned, entries, tensors)
        if known is not None:
            return known
        finder = _Finder(self._all, owned)
        watched: dict[int, Pairs] = {}
        notes: list[Found | None] = []
        for entry, own in zip(entries, tensors, strict=True):
            found = None if entry.key in self.eager else finder.find(entry, own)
            if found is None or not self._may_be_late(entry, found[0]):
                notes.append(Found())
                continue
            guard, tensor = found
            entry.guard = guard.number
            follower = guard.follower_of(tensor)
            add_pairs(watched.setdefault(guard.number, []), entry.key, tensor, own, follower)
            notes.append(finder.note(guard, tensor, follower))
        self._memo = self._memo_of(asked, owned, notes)
        return watched

    def _memo_of(
        self, asked: Asked, owned: list[list[Any]], notes: list[Found | None]
    ) -> GuardMemo | None:
        rolls = [guard.roll_call(each) for guard, each in zip(self._all, owned, strict=True)]
        known = [roll for roll in rolls if roll is not None]
        found = [note for note in notes if note is not None]
        if len(known) != len(rolls) or len(found) != len(notes):
            return None
        return GuardMemo(asked, known, found)

    def _watch_held(self, entries: Sequence[Entry]) -> dict[int, list[tuple[str, Any]]]:
        held = [entry for entry in entries if entry.is_held and entry.bytes >= LAZY_BYTES_MIN]
        if not held:
            return {}
        if not self._held:
            self._numbers += 1
            self._held = self._numbers
        for entry in held:
            entry.guard = self._held
        # Their places alone: an early capture must not be taken for one of newer arrays.
        return {self._held: [(entry.key, _HeldMemory(entry.address)) for entry in held]}


_Found: TypeAlias = tuple[Guard, Any]  # and the tensor that it stands before


class _Finder:
    """Which guard stands before an entry's memory."""

    def __init__(self, guards: Sequence[Guard], owned: Sequence[Sequence[Any]]) -> None:
        self._guards = list(zip(guards, owned, strict=True))
        self._alone = guards[0] if len(guards) == 1 else None  # whatever is shared has one guard
        # By identity, where it is among all that the guards stand before.
        self._places = {id(each): place for place, each in enumerate(chain(*owned))}

    def find(self, entry: Entry, own: Sequence[Any]) -> _Found | None:
        """The guard of a tensor that holds all of the entry."""
        found = self._by_identity(entry, own) or self._by_address.get(entry.address)
        # More than this guard stands before, otherwise.
        return found if found is not None and entry.bytes <= found[1].nbytes else None

    def note(self, guard: Guard, tensor: Any, follower: Any) -> Found | None:
        """What was found, by places; None where it is not among what the guards stand before."""
        place = self._places.get(id(tensor))
        behind = None if follower is None else self._places.get(id(follower), -1)
        if place is None or behind == -1:
            return None
        return Found(guard.number, place, behind)

    def _by_identity(self, entry: Entry, own: Sequence[Any]) -> _Found | None:
        guard = self._alone
        for each in own:
            known = guard is not None and id(each) in self._places
            if guard and known and guard.can_watch(each) and each.data_ptr() == entry.address:
                return guard, each
        return None

    @cached_property
    def _by_address(self) -> dict[int, _Found]:
        found: dict[int, _Found] = {}
        spans: list[tuple[int, int, int]] = []
        # Modules last: they leave to optimizers what those have too.
        for guard, owned in sorted(self._guards, key=lambda each: each[0].mode == "module"):
            for tensor in filter(guard.can_watch, owned):
                low = tensor.data_ptr()
                known = found.setdefault(low, (guard, tensor))
                if self._alone is not None:
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
