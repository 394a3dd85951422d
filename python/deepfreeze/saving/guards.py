"""The guards of attached targets, and the entries of a save that they allow to capture later.

A Watch then shows whether a tensor changed before it was captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias

from deepfreeze import _core
from deepfreeze.saving.capture import Capture
from deepfreeze.state.contracts import Guard, Mode, RollCall
from deepfreeze.state.entry import HOST, Entry

LAZY_BYTES_MIN = 64 * 1024  # of host memory; less is copied before save() returns

Pairs: TypeAlias = list[tuple[str, Any]]  # keys of entries, with tensors to watch for them
# The numbers of the guards, whether hooks run at the updates of each, and the keys that are eager.
Conditions: TypeAlias = tuple[list[int], dict[int, bool], frozenset[str]]


def is_worth_a_guard(entry: Entry) -> bool:
    """Whether it takes longer to copy than to watch.

    On a device even a small copy would hold up the work that follows save().
    """
    return entry.bytes >= LAZY_BYTES_MIN or (entry.device != HOST and not entry.is_held)


class Watch:
    """Tensors of one guard, and their version counters and addresses when they were recorded."""

    def __init__(
        self, keys: list[str], tensors: list[Any], versions: _core.Versions | None = None
    ) -> None:
        """Watches tensors, each for the entry with its key. `versions`: those of now, if known."""
        self._keys = keys
        self._tensors = tensors
        self._versions = versions or _core.Versions(tensors)

    def record(self) -> None:
        """Records the present versions and addresses for the capture."""
        self._versions = _core.Versions(self._tensors)

    def changed(self) -> list[str]:
        """The keys of tensors that were written or moved since record()."""
        try:
            places = self._versions.changed(self._tensors)
        except Exception:  # swapped with a tensor without memory: counts as a change
            return list(dict.fromkeys(self._keys))
        return [self._keys[place] for place in places]

    def same_as(self, other: Watch) -> bool:
        """Whether both watch the same tensors, and found the same versions and addresses."""
        return self._found() == other._found()

    def kept_in(self, tensors: list[Any]) -> KeptWatch | None:
        """The memo of this watch; None unless all its tensors are in the list."""
        places = _core.Placed(self._tensors, tensors).places()
        return None if -1 in places else KeptWatch(self._keys, places, self._versions)

    def _found(self) -> set[tuple[str, int, int]]:
        """As a set, since a first walk may find a tensor and its detach(): both are one here."""
        recorded = zip(self._keys, self._versions.recorded(), strict=True)
        return {(key, *version) for key, version in recorded}


@dataclass(frozen=True)
class KeptWatch:
    """A watch without its tensors: these have places in the list of a series."""

    keys: list[str]
    places: list[int]
    versions: _core.Versions  # with the tensors' addresses

    def of(self, tensors: list[Any]) -> Watch:
        """The watch, if the tensors in the list have not moved."""
        watched = [tensors[place] for place in self.places]
        return Watch(self.keys, watched, self.versions.again(watched))


def _watch_of(pairs: Pairs) -> Watch:
    return Watch([key for key, _ in pairs], [tensor for _, tensor in pairs])


@dataclass(frozen=True)
class _HeldMemory:
    """Memory as a Watch sees a tensor; its framework replaces it, and never writes it."""

    address: int
    _version: int = 0

    def data_ptr(self) -> int:
        return self.address


@dataclass
class Guards:
    """All guards of one checkpointer."""

    eager: set[str] = field(default_factory=set)  # keys that were found torn once
    # Whether hooks run at each update, by number; known once one has run. An update that is
    # replayed from a CUDA graph runs none, whenever it was captured, and so it has no fence.
    _hooked: dict[int, bool] = field(default_factory=dict)
    _all: list[Guard] = field(default_factory=list)
    _numbers: int = 0
    _held: int = 0  # the number for held entries, once there are some: they need no fence
    _memo: GuardMemo | None = None  # of the last save that examined
    _kept: KeptMemo | None = None  # the same, for a capture with the same entries

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._all)

    def add(self, make: Callable[[int], Guard]) -> Guard:
        """Adds a guard that is made with a number of its own."""
        self._numbers += 1
        self._all.append(make(self._numbers))
        return self._all[-1]

    def mode_of(self, target: object) -> Mode | None:
        """The mode in which `target` is attached, if it is."""
        return next((guard.mode for guard in self._all if guard.target is target), None)

    def remove(self, target: object | None) -> None:
        """Detaches one target, or all."""
        gone = [guard for guard in self._all if target is None or guard.target is target]
        for guard in gone:
            guard.detach()
            self._all.remove(guard)
            self._hooked.pop(guard.number, None)
        self._memo = self._kept = None

    def note_hook(self, number: int, captured: bool) -> None:
        """Notes that a hook runs before an update, which may be captured into a graph."""
        self._hooked[number] = self._hooked.get(number, True) and not captured

    def watch(self, capture: Capture) -> tuple[dict[int, Watch], bool]:
        """Gives entries their guards; returns the tensors to watch for each guard until all is
        copied, and whether every entry of a kept series has kept its guard, too."""
        conditions = self._conditions()
        kept, self._kept = self._kept, None  # an error must not leave an answer for other entries
        if kept is not None and capture.follows_table:
            known = kept.again(capture, conditions, self._all)
            if known is not None:
                self._kept = kept
                return known, True
        held: list[Entry] = []
        worth: list[Entry] = []  # a guard
        own: list[Sequence[Any]] = []
        for entry, each in zip(capture.entries, capture.tensors, strict=True):
            entry.guard = 0
            if not is_worth_a_guard(entry):
                continue
            if entry.is_held:
                held.append(entry)
            else:
                worth.append(entry)
                own.append(each)
        watched = self._watch_held(held) if held else {}
        if self._all:
            watched |= self._watch_guarded(worth, own)
        watches = {number: _watch_of(pairs) for number, pairs in watched.items()}
        self._kept = KeptMemo.of(capture, conditions, self._all, watches)
        return watches, False

    def _conditions(self) -> Conditions:
        numbers = [guard.number for guard in self._all]
        return numbers, dict(self._hooked), frozenset(self.eager)

    def _watch_guarded(
        self, entries: Sequence[Entry], tensors: Sequence[Sequence[Any]]
    ) -> dict[int, Pairs]:
        """As in the last save, if nothing has changed."""
        owned = [guard.owned() for guard in self._all]
        asked = Asked(
            self._conditions(), [(entry.key, entry.address, entry.bytes) for entry in entries]
        )
        known = None if self._memo is None else self._memo.again(asked, owned, entries, tensors)
        if known is not None:
            return known
        finder = _Finder(self._all, owned)
        watched: dict[int, Pairs] = {}
        notes: list[Found | None] = []
        for entry, own in zip(entries, tensors, strict=True):
            entry.guard = 0  # the memo may have given it one
            found = None if entry.key in self.eager else finder.find(entry, own)
            if found is not None and not all(map(_counts_versions, own)):
                found = None  # a change could not be told
            # On a device a fence must be known to come in time; for modules the user calls fence().
            if found is None or not (
                entry.device == HOST
                or found[0].mode == "module"
                or self._hooked.get(found[0].number, False)
            ):
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

    def _watch_held(self, held: Sequence[Entry]) -> dict[int, Pairs]:
        """Entries that their frameworks keep from being written."""
        if not self._held:
            self._numbers += 1
            self._held = self._numbers
        for entry in held:
            entry.guard = self._held
        # Only their addresses: an early capture must not be taken for one of newer arrays.
        return {self._held: [(entry.key, _HeldMemory(entry.address)) for entry in held]}


@dataclass(frozen=True, slots=True)
class Found:
    """The guard of one entry. Places count among all values that the guards own."""

    guard: int = 0  # its number; 0: it has none, or none in time
    tensor: int = 0  # the place of the tensor that holds the entry
    follower: int | None = None


@dataclass(frozen=True)
class Asked:
    """The inputs of the answer, except those that the guards' roll calls see."""

    conditions: Conditions
    entries: list[tuple[str, int, int]]  # their keys, addresses and sizes


@dataclass(frozen=True)
class KeptMemo:
    """One answer of Guards.watch(), for captures that keep the series of entries.

    All depends on objects by identity. A tensor of the series is unchanged, unless it is among
    those that moved: these must be small, so that they have no guard wherever they lie, and neither
    a guard nor a watch may have them. A generator's state is such a tensor, new at each save.
    """

    series: list[Entry]  # this list itself
    conditions: Conditions
    placed: list[_core.Placed]  # the objects that each guard depends on
    twins: _core.Placed  # tensors that are in the series twice: an alias may take the place of one
    watched: dict[int, KeptWatch]
    places: frozenset[int]  # in the series, of all tensors that a guard or a watch has

    @classmethod
    def of(
        cls,
        capture: Capture,
        conditions: Conditions,
        guards: Sequence[Guard],
        watches: dict[int, Watch],
    ) -> KeptMemo | None:
        """The memo of an answer; None if the next one may depend on more than identities."""
        series = capture.series
        if series is None:
            return None
        placed: list[_core.Placed] = []
        places: set[int] = set()
        for guard in guards:
            objects = guard.objects()
            if objects is None:
                return None
            at = _core.Placed(objects, series.tensors)
            for value, place in zip(objects, at.places(), strict=True):
                if place < 0 and guard.is_tensor(value):
                    return None  # it can move, and nobody has looked at it
            placed.append(at)
            places.update(at.places())
        watched: dict[int, KeptWatch] = {}
        for number, watch in watches.items():
            kept = watch.kept_in(series.tensors)
            if kept is None:
                return None
            watched[number] = kept
            places.update(kept.places)
        twins = _core.Placed(series.tensors, series.tensors)
        return cls(series.entries, conditions, placed, twins, watched, frozenset(places))

    def again(
        self, capture: Capture, conditions: Conditions, guards: Sequence[Guard]
    ) -> dict[int, Watch] | None:
        """The watches, if all is as it was; the entries have their guards already."""
        series = capture.series
        if series is None or series.entries is not self.series:
            return None
        moved = [series.entries[place] for place in series.moved.entries]
        if conditions != self.conditions or any(
            map(is_worth_a_guard, chain(capture.others(), moved))
        ):
            return None
        if not self.places.isdisjoint(series.moved.tensors):
            return None
        if not self.twins.are(series.tensors, series.tensors):
            return None
        for guard, placed in zip(guards, self.placed, strict=True):
            objects = guard.objects()
            if objects is None or not placed.are(objects, series.tensors):
                return None
        try:
            return {number: watch.of(series.tensors) for number, watch in self.watched.items()}
        except Exception:  # a tensor made in inference mode counts no versions
            return None


@dataclass(frozen=True)
class GuardMemo:
    """One answer of Guards.watch()."""

    asked: Asked
    rolls: list[RollCall]
    found: list[Found]  # for each entry

    def again(
        self,
        asked: Asked,
        owned: list[list[Any]],
        entries: Sequence[Entry],
        tensors: Sequence[Sequence[Any]],
    ) -> dict[int, Pairs] | None:
        """Gives entries their last guards and returns the watches; None if they must be found."""
        if asked != self.asked or not all(
            roll.holds(each) for roll, each in zip(self.rolls, owned, strict=True)
        ):
            return None
        watched = self._watched(owned, entries, tensors)
        counted = all(_counts_versions(each) for pairs in watched.values() for _, each in pairs)
        return watched if counted else None

    def _watched(
        self, owned: list[list[Any]], entries: Sequence[Entry], tensors: Sequence[Sequence[Any]]
    ) -> dict[int, Pairs]:
        pool = [each for of_guard in owned for each in of_guard]
        watched: dict[int, Pairs] = {}
        for entry, own, found in zip(entries, tensors, self.found, strict=True):
            if not found.guard:
                continue
            entry.guard = found.guard
            follower = None if found.follower is None else pool[found.follower]
            pairs = watched.setdefault(found.guard, [])
            add_pairs(pairs, entry.key, pool[found.tensor], own, follower)
        return watched


def _counts_versions(tensor: Any) -> bool:
    """Whether a change of it can be told: a tensor made in inference mode counts none."""
    asked = getattr(tensor, "is_inference", None)
    return asked is None or not asked()


def add_pairs(pairs: Pairs, key: str, tensor: Any, own: Sequence[Any], follower: Any) -> None:
    """Adds the tensors to watch for an entry in `tensor`: all that count versions of its memory."""
    pairs.append((key, tensor))
    for other in own:  # it may count its versions apart, as .data does
        if other is not tensor:
            pairs.append((key, other))
    if follower is not None:
        pairs.append((key, follower))


_Found: TypeAlias = tuple[Guard, Any]  # and the tensor that it guards


class _Finder:
    """Finds the guard of an entry's memory."""

    def __init__(self, guards: Sequence[Guard], owned: Sequence[Sequence[Any]]) -> None:
        self._guards = list(zip(guards, owned, strict=True))
        self._alone = guards[0] if len(guards) == 1 else None  # shared memory has one guard then
        # The place of a tensor, by identity, among all that the guards own.
        self._places = {id(each): place for place, each in enumerate(chain(*owned))}

    def find(self, entry: Entry, own: Sequence[Any]) -> _Found | None:
        """The guard of a tensor that holds all of the entry."""
        found: _Found | None = None
        guard = self._alone
        for each in own:
            known = guard is not None and id(each) in self._places
            if guard and known and guard.can_watch(each) and each.data_ptr() == entry.address:
                found = guard, each
                break
        found = found or self._by_address.get(entry.address)
        # A larger entry also has memory that this guard does not own.
        return found if found is not None and entry.bytes <= found[1].nbytes else None

    def note(self, guard: Guard, tensor: Any, follower: Any) -> Found | None:
        """The result by places; None if the tensor is not among those that the guards own."""
        place = self._places.get(id(tensor))
        behind = None if follower is None else self._places.get(id(follower), -1)
        if place is None or behind == -1:
            return None
        return Found(guard.number, place, behind)

    @cached_property
    def _by_address(self) -> dict[int, _Found]:
        found: dict[int, _Found] = {}
        spans: list[tuple[int, int, int]] = []
        # Modules last: tensors that optimizers have, too, are the optimizers' to guard.
        for guard, owned in sorted(self._guards, key=lambda each: each[0].mode == "module"):
            for tensor in filter(guard.can_watch, owned):
                low = tensor.data_ptr()
                known = found.setdefault(low, (guard, tensor))
                if self._alone is not None:
                    continue
                if known[0] is guard or guard.mode != "module" or known[1].shape != tensor.shape:
                    spans.append((low, low + span_bytes(tensor), guard.number))
        for low in _shared(spans) if spans else ():
            found.pop(low, None)
        return found


def span_bytes(tensor: Any) -> int:
    """The bytes of memory from the first to the last element."""
    if tensor.is_contiguous():
        return int(tensor.nbytes)
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return int(tensor.element_size() * (1 + sum((size - 1) * step for size, step in steps)))


def _shared(spans: list[tuple[int, int, int]]) -> set[int]:
    """The addresses of tensors that share memory with another guard's: neither guard knows that."""
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
