"""The contracts between the rooms: an adapter's duties, and the objects given to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from deepfreeze.base.names import KeyFilter, KeyTable
from deepfreeze.errors import MismatchError
from deepfreeze.state.dtypes import Shape
from deepfreeze.state.entry import Buffer, Entry, Place
from deepfreeze.state.memo import Memo
from deepfreeze.state.registry import RegisteredType
from deepfreeze.state.tree import Decoder, Node

# The work that a match leaves to do: None if the live value is filled in place, else a function
# that makes the new value, to be called once the data has been read.
Remake: TypeAlias = Callable[[], Any] | None
Form: TypeAlias = tuple[str, Shape]  # dtype and shape
Mode: TypeAlias = str  # "window" or "after_update"; of modules "module"


class UnknownTypeError(MismatchError):
    """A registered type is stored that this program has not registered."""


class Moved(NamedTuple):
    """The parts of a series that may lie in other memory than in the capture before."""

    tensors: Sequence[int]  # their places
    entries: Sequence[int]  # their places among the entries of the series


@dataclass(frozen=True)
class Series:
    """Entries that an adapter adds at once, and the tensors of its framework that they store."""

    entries: list[Entry]
    tensors: list[Any]
    members: list[list[int]] | None  # each entry's, by their places; None: one each
    # If `entries` is the list of the capture before, all others in it are unchanged, or, if they
    # are copies on the host, new objects.
    moved: Moved

    def tensors_of_entries(self) -> list[Sequence[Any]]:
        """Each entry's tensors."""
        if self.members is None:
            return [*zip(self.tensors)]
        return [[self.tensors[place] for place in places] for places in self.members]


class Sink(Protocol):
    """The walk of a save, as adapters see it: it takes nodes and entries."""

    @property
    def state(self) -> object:
        """The whole state."""

    @property
    def memo(self) -> Memo:
        """The memo of the checkpointer's last walk, for the next one."""

    @property
    def keys(self) -> KeyTable:
        """The keys that entries have so far."""

    entries: list[Entry]
    owners: list[object]  # keep the entries' memory alive

    def encode(self, value: object, path: str) -> Node:
        """The node of a value that belongs to an object of the state."""

    def encode_part(self, value: object, path: str) -> Node:
        """The node of a part of a container that an adapter knows: it may hold objects, too."""

    def refuse_inside(self, value: object, path: str) -> None:
        """EncodeError for an object within another one's state: it could not be restored there."""

    def add(self, entry: Entry, owners: Iterable[object], tensors: Sequence[Any] = ()) -> None:
        """Adds one entry; `owners` and `tensors` keep its memory alive."""

    def add_series(self, series: Series) -> None:
        """Adds many entries, whose owners are added already. One series at most for a capture."""


class Source(Protocol):
    """A checkpoint whose data has been read, as adapters see it when they decode."""

    @property
    def decoder(self) -> Decoder:
        """Decodes the nodes within a node."""

    def form_in(self, node: Node) -> Form | None:
        """The dtype and shape of a stored array or tensor; None for any other node."""

    def form_of(self, key: str) -> Form:
        """The dtype, by its framework name, and the shape of an entry."""

    def forms_of(self, keys: Iterable[str]) -> list[Form]:
        """The same of many entries."""

    def buffer_of(self, key: str) -> Buffer:
        """The entry that was read into a buffer."""


class Filler(Source, Protocol):
    """The plan of a restore, as adapters see it when they match."""

    @property
    def keys(self) -> KeyFilter:
        """The names that the caller wants."""

    @property
    def adapters(self) -> Sequence[Adapter]:
        """The adapters of this restore."""

    state: object
    strict: bool
    missing: list[str]
    unexpected: list[str]
    mismatched: dict[str, str]  # names that stay, and the reason
    modifying: bool  # whether live state may have been written

    def match(self, node: Node, live: Any, path: str) -> Remake:
        """Plans how `live` takes `node`; Remake names the caller's part."""

    def live_names(self, live: Any, path: str) -> list[str]:
        """The names of the values in a live state; a plain value or an object counts as one."""

    def fresh(self, node: Node, path: str) -> Callable[[], Any]:
        """Has the entries of `node` read; the function makes its value, after the read."""

    def fill(self, key: str, place: Place) -> None:
        """Has the entry `key` read into `place`."""

    def fill_all(self, places: Sequence[tuple[str, Place]]) -> None:
        """The same for many entries."""

    def write(self, place: Place) -> None:
        """Has `place` filled by its own copy(), which needs no data that is still to be read."""

    def apply(
        self, path: str, put: Callable[[], object], within: Sequence[str] | None = None
    ) -> None:
        """Has `put` called once the data is read. `within`: the names, if it puts several."""

    def defer(self, match_late: Callable[[], object]) -> None:
        """Has a match made after all others."""

    def following(self, leader: str | None, path: str) -> AbstractContextManager[None]:
        """Plans made within belong to `path`, and hold only if the live `leader` is restored."""

    def ask(self, path: str, ask: Callable[[Filler], Callable[[], None]]) -> None:
        """Has the object called `path` load values by itself, once those have been read.

        MismatchError if it can't. The function that `ask` returns undoes the loading.
        """

    def holds(self, key: str, place: Place) -> None:
        """Notes memory of an object that is asked: nothing else may be read into it.

        `key` is the entry that the memory will hold, or a unique name if that is not known.
        """

    def held_by(self, live: object) -> dict[str, object]:
        """The objects that a live object holds, and that its own state leaves out."""

    def take(self, container: Any, key: Any, node: Node, path: str) -> bool:
        """Notes that a live container gets a node's value; False if it gets another one already."""

    def leaves_alone(self, path: str) -> bool:
        """Whether this rank's own state stays unchanged; notes the path if it does."""

    def miss(self, path: str) -> None:
        """Notes that the checkpoint lacks the live `path`."""

    def surplus(self, node: Node, path: str) -> None:
        """Notes that the live state has no place for a stored node."""

    def mismatch(self, path: str, node: Node, live: str) -> None:
        """Notes that the stored node can't go into the live value, which is described."""

    def unfit(self, path: str, reason: str) -> None:
        """Notes that the live `path` can't take its stored value, and stays unchanged."""

    def same_form(self, path: str, stored: Form, live: Form) -> bool:
        """Whether dtype and shape are the same; notes the mismatch if they are not."""

    def text_of(self, node: Node) -> str:
        """The value of a node, in the words of messages."""

    def check(self) -> None:
        """MismatchError if the state and the checkpoint don't fit. Nothing is modified yet."""


class Adapter(ABC):
    """Stores and fills the values of one framework. One instance serves one save or restore."""

    numerous: Sequence[type] = ()  # claimed types of which a state has thousands
    remembers = False  # whether a walk calls recall(), note() and finish()

    @abstractmethod
    def claims(self, value: object) -> bool:
        """Whether `value` belongs to this adapter."""

    @abstractmethod
    def encode(self, value: Any, path: str, capture: Sink) -> Node:
        """The node of a claimed value; EncodeError if it can't be stored."""

    def recall(self, mapping: dict[Any, Any], path: str) -> Node | None:
        """The node of a dict that note() was told of in the last walk, if it is the same still."""
        return None

    def note(  # noqa: B027 (most adapters recall nothing)
        self, mapping: dict[Any, Any], path: str, node: Node
    ) -> None:
        """Learns that a dict has been encoded to this node."""

    def finish(self, capture: Sink) -> None:  # noqa: B027 (most add at once)
        """After the walk: adds the entries that had to wait for the whole state."""

    @abstractmethod
    def match(self, node: Node, live: Any, path: str, plan: Filler) -> Remake:
        """Plans how the stored `node` gets into the claimed `live` value. Changes nothing yet."""

    def match_registered(
        self, node: Node, live: Any, known: RegisteredType, path: str, plan: Filler
    ) -> tuple[Remake] | None:
        """The same for a value of a type that the program has registered.

        None if its framework has nothing to add: then the value is made anew.
        """
        return None

    def allocate(self, name: str, shape: Shape, size: int) -> Buffer | None:
        """Memory for an entry of that form; None if it need not be of this framework."""
        return None

    def decodes(self, tag: str, node: Node) -> bool:
        """Whether nodes like this are this adapter's to decode."""
        return False

    def decode(self, tag: str, node: Node, path: str, plan: Source) -> object:
        """The value of a node whose data has been read."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Versions and settings without which a resumed run can't be bit-identical."""
        return {}


class RollCall(Protocol):
    """Recognises the values of one guard from the last time they were examined."""

    def holds(self, owned: Sequence[Any]) -> bool:
        """Whether these are of the same kinds, in the same places, and nothing else has changed."""


class TensorMemory(NamedTuple):
    """The bytes of a tensor, and those of the storage that it lies in, with others perhaps."""

    bytes: int
    storage: int
    storage_bytes: int
    device: int
    copies: int | None  # ranks that have the same and share it; None: all


class Guard(ABC):
    """Guards some tensors: has them fenced before they change. `number` is its native fence's."""

    number: int
    target: object
    mode: Mode

    @abstractmethod
    def owned(self) -> list[Any]:
        """The values that it guards now, also those that are no tensors."""

    def roll_call(self, owned: Sequence[Any]) -> RollCall | None:
        """Tells later whether owned() is unchanged; None if it has to be examined each time."""
        return None

    def objects(self) -> list[Any] | None:
        """All objects that its answers depend on, in a constant order; None if they can't be told.

        Those that are tensors can move, or be parts of others: is_tensor().
        """
        return None

    def is_tensor(self, value: Any) -> bool:
        """Whether one of objects() is a tensor."""
        return False

    @abstractmethod
    def can_watch(self, value: Any) -> bool:
        """Whether the value is a tensor that can be captured later."""

    def memory(self, *, is_whole: bool) -> list[TensorMemory]:
        """That of its tensors which a save will need; empty if it is not known yet.

        is_whole: It has been updated once, so that all of its state is there.
        """
        return []

    def follower_of(self, tensor: Any) -> Any:
        """A small tensor that changes whenever `tensor`, one of its own, changes; or None."""
        return None

    @abstractmethod
    def detach(self) -> None:
        """Removes its hooks."""


def refuse_other_mode(mode: Mode, right_for: str) -> None:
    """ValueError unless the mode is "window", the only one that most targets have."""
    if mode != "window":
        raise ValueError(f"attach: mode {mode!r} is for {right_for}")
