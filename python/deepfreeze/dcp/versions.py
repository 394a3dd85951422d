"""Small runs of one stream each: every version of the stream is a step of its run.

One process writes them at a time. Each run stays open for its next version as long as it is one of
the last few: opening claims it, which costs three syncs and a file.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from deepfreeze import _core
from deepfreeze.dcp.saving import save_and_wait
from deepfreeze.errors import CheckpointError
from deepfreeze.saving.capture import table_of, walk
from deepfreeze.state.memo import Memo

_OPEN_MAX = 8
_ARENA_BYTES_MAX = 32 << 20


def versions(run: Path) -> list[_core.CheckpointInfo]:
    """All committed versions, newest first; none if the run does not exist."""
    try:
        infos = _core.list_checkpoints(os.fspath(run))
    except CheckpointError as error:
        if error.code == "not_found":
            return []
        raise
    return sorted(infos, key=lambda info: info.step, reverse=True)


def commit(run: Path, state: dict[str, Any], keep_last: int | None = None) -> None:
    """Adds a version; returns once it is durable. Any thread. CheckpointError."""
    _runs.of(run, keep_last).commit(state)


def forget(folder: Path) -> None:
    """Closes the runs that this process has open in a folder, which is going to be removed."""
    _runs.close_in(folder)


class _Run:
    def __init__(self, path: Path, keep_last: int | None) -> None:
        self.path = path
        self.lock = threading.Lock()
        self._keep_last = keep_last
        self._engine: _core.Engine | None = None

    def commit(self, state: dict[str, Any]) -> None:
        with self.lock:
            was_open = self._engine is not None
            try:
                self._commit(state)
            except CheckpointError:
                self.close()
                if not was_open:
                    raise
                self._commit(state)  # another process has written it since, or removed it

    def _commit(self, state: dict[str, Any]) -> None:
        if self._engine is None:
            self._engine = self._opened()
        capture = walk(state)
        step = 1 + max((info.step for info in versions(self.path)), default=0)
        table = table_of(capture.entries, Memo())
        save_and_wait(self._engine, step, table, capture.text, {}, capture.entries)

    def _opened(self) -> _core.Engine:
        engine = _core.Engine(
            os.fspath(self.path),
            keep_last=self._keep_last,
            profile="throughput",
            arena_bytes_max=_ARENA_BYTES_MAX,
        )
        newest = next((info for info in engine.candidates() if not info.fault), None)
        if newest is not None:
            engine.continue_from(newest)
        return engine

    def close(self) -> None:
        """Closes the run; the caller holds its lock."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()


class _Runs:
    """The few runs that were used last. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[Path, _Run] = OrderedDict()

    def of(self, path: Path, keep_last: int | None) -> _Run:
        with self._lock:
            run = self._runs.setdefault(path, _Run(path, keep_last))
            self._runs.move_to_end(path)
            idle = [one for one in self._runs.values() if one is not run and not one.lock.locked()]
            dropped = idle[: max(0, len(self._runs) - _OPEN_MAX)]
            for one in dropped:
                del self._runs[one.path]
        _close(dropped)
        return run

    def close_in(self, folder: Path) -> None:
        with self._lock:
            dropped = [run for path, run in self._runs.items() if path.is_relative_to(folder)]
            for run in dropped:
                del self._runs[run.path]
        _close(dropped)


def _close(runs: list[_Run]) -> None:
    for run in runs:
        with run.lock:
            run.close()


_runs = _Runs()
