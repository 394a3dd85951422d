"""The names that a pickle would look up and could call, found without running the pickle."""

from __future__ import annotations

import contextlib
import pickletools
from collections import deque
from typing import IO, Any

_NAMED_IN_PLACE = frozenset({"GLOBAL", "INST"})
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})


class _Names:
    """Follows the strings that a pickle pushes; names are made of nothing else."""

    def __init__(self) -> None:
        self.found: dict[str, None] = {}  # in order
        self._last_two: deque[str] = deque(maxlen=2)
        self._top: str | None = None  # the top of the stack, if it is a string
        self._memo: dict[int, str | None] = {}

    def see(self, operation: str, argument: Any) -> None:
        """Notes the next operation."""
        if operation == "MEMOIZE":
            self._memo[len(self._memo)] = self._top
            return
        if operation in _PUTS:
            self._memo[int(argument)] = self._top
            return
        if operation in _NAMED_IN_PLACE:
            self.found[str(argument).replace(" ", ".", 1)] = None
        elif operation == "STACK_GLOBAL":
            self.found[".".join(self._last_two)] = None
        self._top = self._pushed(operation, argument)
        if self._top is not None:
            self._last_two.append(self._top)

    def _pushed(self, operation: str, argument: Any) -> str | None:
        if operation in _GETS:
            return self._memo.get(int(argument))
        is_text = operation.endswith(("UNICODE", "UNICODE8", "STRING"))
        return argument if is_text and isinstance(argument, str) else None


def names_in(stream: IO[bytes], pickles: int = 1) -> list[str]:
    """The names in `pickles` consecutive pickles, as far as they can be read."""
    names = _Names()
    with contextlib.suppress(Exception):  # bytes that are no pickle raise anything
        for _ in range(pickles):
            for operation, argument, _ in pickletools.genops(stream):
                names.see(operation.name, argument)
    return list(names.found)
