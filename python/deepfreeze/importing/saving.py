"""Streams the contents of a source into a run, through a small part of memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Self

from deepfreeze import _core
from deepfreeze.base.progress import Progress
from deepfreeze.errors import CheckpointError, CheckpointTimeoutError, make_error
from deepfreeze.importing.content import Content
from deepfreeze.importing.source_files import SourceFile
from deepfreeze.saving.capture import table_of
from deepfreeze.state.memo import Memo

ARENA_BYTES_MAX = 256 << 20
_POLL_SECONDS = 0.1
# Room for values that several names share in the source, and that are stored once for each.
_SHARED_BYTES_MAX = 64 << 20
_GUARD = 1  # guards all entries: save() returns at once, and its progress can be watched


def check_step(run: Path, step: int) -> None:
    """CheckpointError if the run has that step, or a newer one on its line."""
    try:
        infos = _core.list_checkpoints(os.fspath(run))
    except CheckpointError as error:
        if error.code == "not_found":
            return  # the import will make it
        raise
    _check_step(run, step, infos)


def _check_step(run: Path, step: int, infos: list[_core.CheckpointInfo]) -> None:
    if any(info.step == step for info in infos):
        raise make_error("exists", f"import step {step} into {run}: it has that step already")
    newest = max((info.step for info in infos if not info.abandoned), default=-1)
    if newest > step:
        raise make_error(
            "exists",
            f"import step {step} into {run}: it has the newer step {newest}, which would come "
            "before it",
        )


def store(
    content: Content, run: Path, step: int, tags: dict[str, str], progress: Progress
) -> _core.CheckpointInfo:
    """Commits the content as a step of the run's line. Returns once that is durable."""
    _check(content)
    engine = _core.Engine(os.fspath(run), profile="latency", arena_bytes_max=ARENA_BYTES_MAX)
    try:
        infos = engine.candidates()
        _check_step(run, step, infos)
        newest = next((info for info in infos if not info.fault), None)
        if newest is not None:
            engine.continue_from(newest)
        _commit(engine, content, step, tags, progress)
    finally:
        engine.close()
    return next(info for info in _core.list_checkpoints(os.fspath(run)) if info.step == step)


def _check(content: Content) -> None:
    for file in content.files:  # the values in memory must come from the files that were checked
        file.check_unchanged()
    part = next((entry.key for entry in content.entries if entry.box is not None), None)
    if part is not None:
        text = f"import: {part} is a box of a tensor that several ranks share, not all of it"
        raise make_error("unsupported", text)
    size = sum(entry.bytes for entry in content.entries)
    there = content.unpacked_bytes
    if there is None:
        there = sum(file.bytes for file in content.files)
    if size > there + _SHARED_BYTES_MAX:
        text = f"import: its arrays would take {size} bytes, its files have {there}"
        raise make_error("unsupported", text)


def _commit(
    engine: _core.Engine, content: Content, step: int, tags: dict[str, str], progress: Progress
) -> None:
    for entry in content.entries:
        entry.guard = _GUARD
    table = table_of(content.entries, Memo())
    # No environment: nobody knows in which one the state was made, and a restore compares it.
    try:
        handle = engine.save(step, table, content.tree, {}, tags, {}, confirm=True)
    except CheckpointError as cause:
        if cause.code != "invalid_argument":
            raise
        raise make_error("unsupported", f"import: {cause}") from cause  # the source is at fault
    assert handle is not None  # only on_busy="skip" gives none
    with _Saving(handle, progress) as saving:
        del handle
        saving.finish(content.files)


class _Saving:
    """The save under way. It holds the only reference to the handle: dropping it ends the save."""

    def __init__(self, handle: _core.SaveHandle, progress: Progress) -> None:
        self._handle: _core.SaveHandle | None = handle
        self._progress = progress

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle = None

    @property
    def _now(self) -> _core.SaveHandle:
        assert self._handle is not None
        return self._handle

    def finish(self, files: list[SourceFile]) -> None:
        """Returns once the step is durable; commits nothing if a file has changed meanwhile."""
        if self._now.status().guarded_bytes:  # else nothing is left to confirm
            self._watch(lambda: self._now.wait_copied(_POLL_SECONDS))
            for file in files:
                file.check_unchanged()
            self._now.confirm([])
        self._watch(lambda: self._now.wait("durable", _POLL_SECONDS))

    def _watch(self, wait: Callable[[], None]) -> None:
        while True:
            try:
                return wait()
            except CheckpointTimeoutError:
                self._progress.update(self._now.status().bytes_copied)
