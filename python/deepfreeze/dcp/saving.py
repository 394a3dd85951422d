"""One save of the engine, from its call to its end, for callers that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from deepfreeze import _core
from deepfreeze.errors import CheckpointTimeoutError
from deepfreeze.frameworks.in_use.adapters import adapters_in_use, environment_of
from deepfreeze.frameworks.torch import device as torch_device
from deepfreeze.state.entry import Entry

_POLL_SECONDS = 0.5  # how soon an interrupt is noticed


def save_and_wait(
    engine: _core.Engine,
    step: int,
    table: _core.Table,
    text: str,
    tags: dict[str, str],
    entries: Iterable[Entry],
) -> None:
    """Returns once the save is durable. Raises the save's own error.

    An interrupt meanwhile withdraws the entries' memory; the save then fails, unless it has
    captured everything.
    """
    streams = torch_device.streams_under(entries)
    environment = environment_of(adapters_in_use())
    handle = engine.save(
        step, table, text, {}, tags, environment, confirm=bool(streams), streams=streams
    )
    assert handle is not None  # only on_busy="skip" gives none
    held = [handle]
    del handle
    try:
        if streams:
            # A bound method would hold it, too.
            _until(lambda seconds: held[0].wait_copied(seconds))  # noqa: PLW0108
            held[0].confirm([])
        _until(lambda seconds: held[0].wait("durable", seconds))
    finally:
        held.clear()  # a caller that keeps the exception would else keep the save alive


def _until(wait: Callable[[float], None]) -> None:
    while True:
        try:
            return wait(_POLL_SECONDS)
        except CheckpointTimeoutError:
            continue  # the save's own error is never this one
