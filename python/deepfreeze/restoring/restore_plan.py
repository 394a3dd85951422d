"""The order of a restore: first values are made, then live memory is filled; RNGs come last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from deepfreeze.frameworks.in_use.held_objects import HeldObjects
from deepfreeze.restoring.matching import live_names, match, match_state
from deepfreeze.restoring.plan import Plan
from deepfreeze.state.contracts import Filler, Remake
from deepfreeze.state.entry import Place
from deepfreeze.state.tree import Node

_Ask: TypeAlias = Callable[[Filler], Callable[[], None]]


class RestorePlan(Plan):
    """A plan that makes all values before it modifies anything, and restores RNGs last.

    `is_new_rank`: fewer ranks saved the checkpoint, so it has no state of this rank's own.
    """

    def __init__(self, *arguments: Any, is_new_rank: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_new_rank = is_new_rank
        self._held = HeldObjects(self.state, {}, is_live=True)
        self.left_alone: list[str] = []
        self._deferred: list[Callable[[], object]] = []  # matches that have to come last
        self._asks: list[tuple[str, _Ask]] = []
        self._take_back: list[Callable[[], None]] = []
        self._touched: set[str] | None = None  # once it is released
        self._taken: dict[tuple[int, Any], tuple[Node, str]] = {}

    def match_state(self, node: Node) -> None:
        """Plans the restore of the whole state, which must be a dict or a list."""
        match_state(node, self.state, self)
        for match_late in self._deferred:
            match_late()

    def match(self, node: Node, live: Any, path: str) -> Remake:
        return match(node, live, path, self)

    def live_names(self, live: Any, path: str) -> list[str]:
        return live_names(live, path, self)

    def defer(self, match_late: Callable[[], object]) -> None:
        self._deferred.append(match_late)

    def held_by(self, live: object) -> dict[str, object]:
        return self._held.of(live)

    def leaves_alone(self, path: str) -> bool:
        """Whether this rank's own state stays unchanged; notes the path if it does."""
        if self._is_new_rank and self.keys.wants_whole(path):
            self.left_alone.append(path)
        return self._is_new_rank

    def take(self, container: Any, key: Any, node: Node, path: str) -> bool:
        """Notes that a live container gets a node's value; False if it gets another one already.

        A tree of arrays that never change may have one container at two places.
        """
        first, other = self._taken.setdefault((id(container), key), (node, path))
        if first != node:
            kind = type(container).__qualname__
            self.unfit(path, f"it is in the same {kind} as {other}, but they were stored apart")
        return bool(first == node)

    def ask(self, path: str, ask: _Ask) -> None:
        """Has the object called `path` load values by itself, once those have been read.

        MismatchError if it can't. The function that `ask` returns undoes the loading.
        """
        self._asks.append((path, ask))

    def holds(self, key: str, place: Place) -> None:
        """Notes memory of an object that is asked: nothing else may be read into it.

        `key` is the entry that the memory will hold, or a unique name if that is not known.
        """
        self._asked.append((key, place))
        self._filled.append(place)

    def take_back(self) -> None:
        """Undoes the loading of asked objects, if nothing else was put in place after it."""
        while self._take_back:
            self._take_back.pop()()

    def put_in_place(self) -> None:
        self._take_back.clear()
        super().put_in_place()

    def read(self, *, verify: bool) -> None:
        """Reads and makes the values first, then reads directly into live memory."""
        places, self._places = self._places, {}
        super().read(verify=verify)
        for value in self._values:
            value()
        self._places = places  # before objects are asked: these may leave tensors as they are
        for _, ask in self._asks:
            self._take_back.append(ask(self))
        fresh, self._fresh = self._fresh, set()
        super().read(verify=verify)
        self._fresh = fresh

    def release(self) -> None:
        self._touched = self.touched
        super().release()
        self._asks = []
        self._applies = []
        self._written = []

    @property
    def touched(self) -> set[str]:
        """The names of all values that this plan fills or replaces."""
        if self._touched is not None:
            return self._touched
        filled = {place.path for place in self._filled}
        put = {name for each in self._applies for name in each.names}
        return filled | put | {path for path, _ in self._asks}
