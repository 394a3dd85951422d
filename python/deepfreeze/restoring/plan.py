"""One restore: planned and checked as a whole before anything is modified.

1. match: walk the tree and the live state together, collect places, mismatches and names.
2. check: a mismatch is raised here, with nothing modified.
3. read: entries with one contiguous home are read straight into it, others into buffers.
4. copy: from the buffers into live tensors; then objects and plain values are put in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from deepfreeze import _core
from deepfreeze.base.names import KeyFilter, chooses, shown
from deepfreeze.base.progress import watched
from deepfreeze.errors import CheckpointError, CorruptError, MismatchError
from deepfreeze.saving.capture import paused_gc
from deepfreeze.state.contracts import Adapter, Form, UnknownTypeError
from deepfreeze.state.dtypes import BY_STORED, logical_form, stored_bytes
from deepfreeze.state.entry import Buffer, Place, sharing_conflicts
from deepfreeze.state.kinds import form_text, text_of_node
from deepfreeze.state.registry import REGISTERED_NAMES
from deepfreeze.state.tree import Decoder, Node, leaf_names, tag_of, tagged_nodes

_NAMES_SHOWN_MAX = 10

_HINT = "strict=False restores the values that fit and reports the rest, keys= chooses by name"

Box = tuple[tuple[int, ...], tuple[int, ...]]  # offset and extent


class Apply(NamedTuple):
    """A call that puts values in place."""

    path: str
    put: Callable[[], object]
    names: Sequence[str]  # of the values


@dataclass(frozen=True)
class _Follower:
    """The plans for `path`, which stays unchanged if the live `leader` does."""

    leader: str | None
    path: str
    applies: list[Apply]
    places: list[Place]


class _WatchedKeys(KeyFilter):
    """Notes which of its patterns have chosen something, live or stored."""

    def __init__(self, keys: KeyFilter) -> None:
        super().__init__(keys._patterns)
        self._used: set[str] = set()

    def wants(self, path: str) -> bool:
        if self._patterns is None:
            return True
        found = [pattern for pattern in self._patterns if chooses(pattern, path)]
        self._used.update(found)
        return bool(found)

    @property
    def unused(self) -> list[str]:
        """The patterns that have chosen nothing so far."""
        return [pattern for pattern in self._patterns or () if pattern not in self._used]


class Once:
    """A function without arguments that is called no more than once."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._value: Any = None

    def __call__(self) -> Any:
        if self._make is not None:
            self._value = self._make()
            self._make = None
        return self._value

    def drop(self) -> None:
        """Drops the value, which has been put in its place."""
        self._make, self._value = None, None


class Plan:
    """The restore of one checkpoint into one state; without a state its values are loaded."""

    def __init__(
        self,
        checkpoint: _core.OpenCheckpoint,
        keys: KeyFilter,
        adapters: Sequence[Adapter],
        *,
        state: object,
        strict: bool,
    ) -> None:
        self.keys = _WatchedKeys(keys)
        self.state = state
        self.strict = strict
        self.adapters = adapters
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.optional: set[str] = set()  # stored names that the live state need not have
        self.mismatched: dict[str, str] = {}  # names that stay, and the reason
        self._checkpoint: _core.OpenCheckpoint | None = checkpoint
        self._specs = {spec.key: spec for spec in checkpoint.tensors()}
        self._places: dict[str, list[Place]] = {}
        self._forms: dict[str, Form] = {}
        self._sizes: dict[str, int] = {}
        self._fresh: set[str] = set()
        self._values: list[Once] = []
        self._applies: list[Apply] = []
        self._filled: list[Place] = []  # in the order in which the state was walked
        self._written: list[Place] = []  # live memory that is filled with plain values
        self._asked: list[tuple[str, Place]] = []  # memory of objects that load by themselves
        self._followers: list[_Follower] = []
        self._buffers: dict[str, Buffer] = {}
        self.label: str | None = None  # of the progress that the read shows; None shows none
        self.modifying = False  # from here on, live state may have been written

    @property
    def decoder(self) -> Decoder:
        """A new decoder each time: a stored one would keep this plan alive."""
        return Decoder(self._decode_leaf)

    # 1. match

    def fill(self, key: str, place: Place) -> None:
        """Has the entry `key` read into `place`."""
        self.fill_all([(key, place)])

    def fill_all(self, places: Sequence[tuple[str, Place]]) -> None:
        """The same for many entries."""
        self.forms_of(key for key, _ in places)
        self._size(key for key, _ in places)
        for key, place in places:
            if place.box is None and place.direct and place.bytes != self._sizes[key]:
                raise CorruptError(f"{key}: it does not hold the {place.bytes} bytes of its form")
            self._places.setdefault(key, []).append(place)
            self._filled.append(place)

    def write(self, place: Place) -> None:
        """Has `place` filled by its own copy(), which needs no data that is still to be read."""
        self._written.append(place)
        self._filled.append(place)

    def fresh(self, node: Node, path: str) -> Callable[[], Any]:
        """Has the entries of `node` read; the function makes its value, after the read."""
        if type(node) not in (list, dict):
            return lambda: node
        for inner in tagged_nodes(node):
            if inner["$"] in ("tensor", "array", "blob"):
                self.form_of(inner["k"])
                self._fresh.add(inner["k"])
            elif inner["$"] == "ext":
                self._check_known(inner, path)
        value = Once(lambda: self.decoder.decode(node, path))
        self._values.append(value)
        return value

    def _check_known(self, node: Node, path: str) -> None:
        if node["t"] not in REGISTERED_NAMES and not self._adapter_for("ext", node):
            raise UnknownTypeError(
                f"{shown(path)}: the type {node['t']!r} is not known here; "
                "call df.register_type, or import its framework, first"
            )

    def apply(
        self, path: str, put: Callable[[], object], within: Sequence[str] | None = None
    ) -> None:
        """Has `put` called once the data is read. `within`: the names, if it puts several."""
        self._applies.append(Apply(path, put, (path,) if within is None else within))

    @contextmanager
    def following(self, leader: str | None, path: str) -> Iterator[None]:
        """Plans made within belong to `path`, and hold only if the live `leader` is restored."""
        applies, filled = len(self._applies), len(self._filled)
        yield
        self._followers.append(
            _Follower(leader, path, self._applies[applies:], self._filled[filled:])
        )

    def miss(self, path: str) -> None:
        """Notes that the checkpoint lacks the live `path`."""
        if self.keys.wants(path):
            self.missing.append(path)

    def surplus(self, node: Node, path: str) -> None:
        """Notes that the live state has no place for a stored node."""
        if path in self.optional:
            return
        self.unexpected.extend(name for name in leaf_names(node, path) if self.keys.wants(name))

    def mismatch(self, path: str, node: Node, live: str) -> None:
        """Notes that the stored node can't go into the live value, which is described."""
        stored = self.text_of(node)
        self.unfit(path, f"stored {stored}, live {live}; put a value like the stored one there")

    def text_of(self, node: Node) -> str:
        """The value of a node, in the words of messages."""
        form = self.form_in(node)
        return text_of_node(node) if form is None else f"{tag_of(node)} {form_text(form)}"

    def unfit(self, path: str, reason: str) -> None:
        """Notes that the live `path` can't take its stored value, and stays unchanged.

        Under strict that forbids the restore; otherwise it is reported in `mismatched`.
        """
        self.mismatched.setdefault(path, reason)

    def same_form(self, path: str, stored: Form, live: Form) -> bool:
        """Whether dtype and shape are the same; notes the mismatch if they are not."""
        if stored == live:
            return True
        self.unfit(path, f"stored {form_text(stored)}, live {form_text(live)}")
        return False

    def form_in(self, node: Node) -> Form | None:
        """The dtype and shape of a stored array or tensor; None for any other node."""
        if tag_of(node) not in ("array", "tensor"):
            return None
        view = node.get("view")
        if view is None:
            return self.form_of(node["k"])
        return str(view["dtype"]), tuple(int(size) for size in view["shape"])

    def forms_of(self, keys: Iterable[str]) -> list[Form]:
        """The same of many entries."""
        return [self._forms.get(key) or self.form_of(key) for key in keys]

    def form_of(self, key: str) -> Form:
        """The dtype, by its framework name, and the shape of an entry."""
        form = self._forms.get(key)
        if form is None:
            spec = self._spec(key)
            name = None if spec.logical_dtype else BY_STORED.get(spec.dtype)
            form = (
                logical_form(spec.dtype, spec.shape, spec.logical_dtype)
                if name is None
                else (name, spec.shape)
            )
            self._forms[key] = form
        return form

    def _spec(self, key: str) -> _core.TensorSpec:
        spec = self._specs.get(key)
        if spec is None:
            raise CorruptError(f"state tree: it names {key}, which the data lacks")
        return spec

    # 2. check

    def check(self) -> None:
        """MismatchError if the state and the checkpoint don't fit. Nothing is modified yet."""
        self._settle()
        faults = []
        if self.strict:
            faults += [f"{shown(path)}: {reason}" for path, reason in self.mismatched.items()]
        if self.keys.unused:
            faults.append(f"keys {_listed(self.keys.unused)} match nothing")
        if self.strict and self.missing:
            faults.append(f"missing in the checkpoint: {_listed(self.missing)}")
        if self.strict and self.unexpected:
            faults.append(f"not in the state: {_listed(self.unexpected)}")
        if faults:
            hints = [_HINT] if self.left_out else []
            raise MismatchError("; ".join([_listed(faults, "; "), *hints]))

    @property
    def left_out(self) -> bool:
        """Whether a live value stays unchanged, or a stored one is not used."""
        return bool(self.mismatched or self.missing or self.unexpected)

    def _settle(self) -> None:
        """Drops places whose memory an earlier place fills with other values."""
        # Several threads would fill shared memory at once, with a mixture of stored values.
        while conflicts := self._conflicts():
            order = {id(place): number for number, place in enumerate(self._filled)}
            losers = set()
            for pair in conflicts:
                first, second = sorted(pair, key=lambda place: order[id(place)])
                reason = f"it shares its memory with {first.path}, but they were stored apart"
                self.unfit(second.path, reason)
                losers.add(id(second))
            self._drop(losers)
        for follower in self._followers:
            if follower.leader in self.mismatched:
                self.unfit(follower.path, f"it belongs to {follower.leader}, which does not fit")
                self._drop({*map(id, follower.places), *map(id, follower.applies)})

    def _conflicts(self) -> list[tuple[Place, Place]]:
        places = {key: list(each) for key, each in self._places.items()}
        for index, place in enumerate(self._written):
            places[f"\0written {index}"] = [place]
        for key, place in self._asked:
            places.setdefault(key, []).append(place)
        asked = {id(place) for _, place in self._asked}
        found = sharing_conflicts(places)
        return [pair for pair in found if not asked.issuperset(map(id, pair))]

    def _drop(self, losers: set[int]) -> None:
        """Removes places and applies from the plan, given by their ids."""
        self._filled = [place for place in self._filled if id(place) not in losers]
        self._written = [place for place in self._written if id(place) not in losers]
        self._asked = [(key, place) for key, place in self._asked if id(place) not in losers]
        self._applies = [each for each in self._applies if id(each) not in losers]
        kept = {
            key: [place for place in places if id(place) not in losers]
            for key, places in self._places.items()
        }
        self._places = {key: places for key, places in kept.items() if places}

    @property
    def bytes(self) -> int:
        """The number of bytes that this plan reads; shared tensors count once."""
        keys = self._places.keys() | self._fresh
        self._size(keys)
        return sum(self._sizes[key] for key in keys)

    @property
    def addresses(self) -> set[int]:
        """The addresses of live memory that this plan fills."""
        return {place.address for place in self._filled}

    # 3. read

    def read(self, *, verify: bool) -> None:
        """Reads all that the plan needs."""
        with paused_gc():
            size = self.bytes
            targets, touches = self._targets()
        for touch in touches:
            touch()
        assert self._checkpoint is not None  # not released
        with watched(self.label, size) as counter:
            self._checkpoint.read(targets, verify, *counter)

    def _targets(self) -> tuple[list[_core.Target], list[Callable[[], object]]]:
        """The memory to read into, and the calls that tell frameworks of it."""
        targets, touches = [], []
        for key in self._places.keys() | self._fresh:
            home = self._home_of(key)
            if home is None:
                buffer = self._buffers[key] = self._allocate(key)
                if buffer.bytes:
                    targets.append(_core.Target(key, buffer.address, buffer.bytes))
            elif home.bytes:
                self.modifying = True
                touches += [place.touch for place in self._places[key] if place.touch is not None]
                targets.append(
                    _core.Target(
                        key,
                        home.address,
                        home.bytes,
                        None if home.box is None else self._box_of(key, home.box),
                        home.ordinal,
                        home.stream,
                    )
                )
        return targets, touches

    def _box_of(self, key: str, box: Box) -> Box:
        """The box of the stored elements; dtypes stored as others have one dimension more."""
        offset, extent = box
        more = self._spec(key).shape[len(extent) :]
        return (*offset, *(0 for _ in more)), (*extent, *more)

    def _size(self, keys: Iterable[str]) -> None:
        """Notes the sizes of these entries in bytes."""
        specs = [self._specs[key] for key in keys if key not in self._sizes]
        self._sizes |= {spec.key: stored_bytes(spec.dtype, spec.shape) for spec in specs}

    def _allocate(self, key: str) -> Buffer:
        name, shape = self.form_of(key)
        size = self._sizes[key]
        found = (adapter.allocate(name, shape, size) for adapter in self.adapters)
        return next(buffer for buffer in found if buffer is not None)

    def _home_of(self, key: str) -> Place | None:
        places = self._places.get(key, [])
        homes = {(place.address, place.bytes) for place in places}
        if key in self._fresh or len(homes) != 1 or not all(place.direct for place in places):
            return None
        return places[0]

    # 4. copy

    def put_in_place(self) -> None:
        """Fills live tensors from the buffers, then puts objects and values in place."""
        self.modifying = True
        read = [each for key, each in self._places.items() if key in self._buffers]
        actions = [(place.path, place.copy) for place in chain(self._written, *read)]
        for path, action in [*actions, *((path, put) for path, put, _ in self._applies)]:
            try:
                action()
            except CheckpointError:
                raise
            except Exception as cause:
                raise CheckpointError(f"restore {shown(path)}: {cause!r}") from cause

    def release(self) -> None:
        """Closes the checkpoint and drops the data that was read.

        Otherwise closures that refer to the plan would keep both until the garbage collector runs.
        """
        self._checkpoint = None
        self._buffers = {}
        for value in self._values:
            value.drop()
        self._values = []

    def buffer_of(self, key: str) -> Buffer:
        """The entry that was read into a buffer."""
        return self._buffers[key]

    def _adapter_for(self, tag: str, node: Node) -> Adapter | None:
        return next((a for a in self.adapters if a.decodes(tag, node)), None)

    def _decode_leaf(self, tag: str, node: Node, path: str) -> object:
        if tag == "blob":
            return self.buffer_of(node["k"]).array.tobytes()
        adapter = self._adapter_for(tag, node)
        if adapter is not None:
            return adapter.decode(tag, node, path, self)
        if tag == "ext":
            self._check_known(node, path)
            known = REGISTERED_NAMES.get(node["t"])
            if known is not None:
                return known.from_tree(self.decoder.decode(node["v"], path))
        raise CorruptError(f"state tree at {shown(path)}: unknown tag {tag!r}")


def _listed(names: Iterable[str], separator: str = ", ") -> str:
    names = list(names)
    more = len(names) - _NAMES_SHOWN_MAX
    return separator.join(names[:_NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
