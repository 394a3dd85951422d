"""Tracks the running call of a checkpointer: a signal handler may make another inside it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from deepfreeze.errors import CheckpointError

log = logging.getLogger("deepfreeze")

_DEFERRING = ("save", "step", "fence")


class Calls:
    """The calls of one checkpointer, for its thread. Two at once would use the same memory."""

    def __init__(self) -> None:
        self.running = ""  # its name
        self._deferred: list[Callable[[], object]] = []

    def defer(self, action: Callable[[], object]) -> bool:
        """Has `action` called at the end of the running save(), step() or fence.

        Returns False if none of them is running.
        """
        if self.running not in _DEFERRING:
            return False
        self._deferred.append(action)
        return True

    def in_fence(self, compare: Callable[[int], object], guard: int) -> None:
        """Calls `compare`; a save() of a signal handler would wait for its end."""
        outer = self.running
        self.running = "fence"
        try:
            compare(guard)
        finally:
            self.running = outer
            if not outer:
                self.run_deferred()

    def run_deferred(self) -> None:
        """Calls the deferred actions, once the call is over."""
        while self._deferred:
            self._deferred.pop(0)()


class Called(Protocol):
    """An object whose methods are such calls."""

    _calls: Calls

    def _check_usable(self) -> None: ...


C = TypeVar("C", bound=Called)
P = ParamSpec("P")
R = TypeVar("R")


def alone(
    *, refused: bool = False
) -> Callable[[Callable[Concatenate[C, P], R]], Callable[Concatenate[C, P], R]]:
    """Makes a method do nothing, and return None, if it is called inside another such method.

    `refused`: it raises a CheckpointError instead.
    """

    def decorate(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
        name = method.__name__

        @functools.wraps(method)
        def call(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
            self._check_usable()
            calls = self._calls
            if calls.running:
                return cast("R", _left_out(f"{name}() inside {calls.running}()", refused=refused))
            calls.running = name
            try:  # before it no interrupt can come
                return method(self, *args, **kwargs)
            finally:
                calls.running = ""  # no interrupt can come before this either
                calls.run_deferred()

        return call

    return decorate


def _left_out(what: str, *, refused: bool) -> None:
    if refused:
        raise CheckpointError(f"{what} is refused", code="invalid_argument")
    log.warning("%s is left out", what)
