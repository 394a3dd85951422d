"""The results of one walk that help the next, which usually finds the same state."""

from __future__ import annotations

from typing import Any

from deepfreeze import _core
from deepfreeze.state.encoder import TextMemo
from deepfreeze.state.entry import Entry


class Memo:
    """The memo of one checkpointer: each Capture reads and replaces it."""

    def __init__(self) -> None:
        self.text = TextMemo()
        self.tensors: Any = None  # these two: the torch adapter's
        self.recalls: Any = None
        # Whether one object's state includes that of an object it holds, by ids: held_objects.py.
        self.held: dict[tuple[int, int], Any] = {}
        self.table: _core.Table | None = None
        self.entries: list[Entry] = []  # of that table
        # Whether the last walk's entries are in it, with their places.
        self.is_placed = False
