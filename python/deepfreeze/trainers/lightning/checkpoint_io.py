"""Keeps the checkpoints that Lightning makes in a run; each path is a link to one of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from lightning.fabric.plugins.io import TorchCheckpointIO

import deepfreeze as df
from deepfreeze import _core
from deepfreeze.base.arguments import absolute_options
from deepfreeze.restoring.chosen import split_address
from deepfreeze.trainers.lightning.held_paths import HeldPaths, is_held
from deepfreeze.trainers.lightning.metrics import logged_metrics
from deepfreeze.trainers.lightning.paths import (
    PATH,
    attempt_at,
    found_at,
    local,
    of_path,
    read,
    run_beside,
)
from deepfreeze.trainers.tested_versions import warn_of_other_release

log = logging.getLogger("deepfreeze")

_WRITER, _NUMBER = "writer", "save"  # tags


class DeepFreezeCheckpointIO(TorchCheckpointIO):  # type: ignore[misc]
    """Trainer(plugins=[DeepFreezeCheckpointIO()]): saves return once the checkpoint is copied.

    `options` are those of df.Checkpointer but for `every`, `keep`, `on_busy` and `ranks`: Lightning
    decides when to save, deletes by remove_checkpoint(), and saves in the first process alone. All
    paths lie in a local directory, whose run `deepfreeze` holds the checkpoints; a path leads to
    its checkpoint once that is durable. A new path exists at once, so that ModelCheckpoint gives no
    name twice (held_paths.py). A save that fails is logged, even if the run can't be opened, and
    the path stays as it was. Other files are read and removed as Lightning does.

    For the trainer's thread.
    """

    def __init__(self, **options: Any) -> None:
        warn_of_other_release("lightning")
        refused = sorted({"every", "keep", "on_busy", "ranks"} & options.keys())
        if refused:
            raise TypeError(f"DeepFreezeCheckpointIO: {', '.join(refused)}: Lightning decides that")
        self._options = absolute_options(options)
        self._runs: dict[Path, df.Checkpointer] = {}
        self._newest: dict[Path, df.SaveHandle] = {}  # of each run
        self._stands_at: dict[Path, _core.CheckpointInfo] = {}  # training, in each run
        self._held = HeldPaths()
        self._writer = uuid4().hex
        self._saves = 0

    def __repr__(self) -> str:
        runs = ", ".join(map(str, self._runs)) or "no run yet"
        return f"<{type(self).__name__} of {runs}>"

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        """Saves to `path`. EncodeError, before anything is written, if a value can't be stored."""
        if storage_options is not None:
            raise TypeError("DeepFreezeCheckpointIO.save_checkpoint: it has no storage_options")
        place = local(path)
        self._saves += 1
        self._newest[run_beside(place)] = handle = self._begin(checkpoint, place)
        handle.durable.add_done_callback(lambda _: self._held.let_go(place))

    def _begin(self, checkpoint: Any, place: Path) -> df.SaveHandle:
        step = int(checkpoint.get("global_step", 0))
        tags = {PATH: place.name, _WRITER: self._writer, _NUMBER: str(self._saves)}
        try:
            run = self._run_of(place)
            self._held.hold(place)
        except (df.CheckpointError, OSError) as error:
            if self._options.get("strict_saves"):
                raise
            log.error("save of step %d failed: %s", step, error)
            return _failed(step, error)
        try:
            handle = run.save(step, checkpoint, logged_metrics(), tags)
        except BaseException:
            self._held.let_go(place)
            raise
        if handle is None:  # a signal handler's, in the middle of another
            return _failed(step, df.CheckpointError(f"{place}: skipped", code="busy"))
        handle.durable.add_done_callback(partial(_if_durable, lambda: _publish(place, tags)))
        return handle

    def load_checkpoint(
        self,
        path: Any,
        map_location: Any = lambda storage, _: storage,
        weights_only: bool | None = None,
    ) -> Any:
        """The saved values; verifies every block. CorruptError if one does not verify.

        `path` may also name a checkpoint of a run as RUN@best, RUN@latest or RUN@STEP. Later saves
        to that run continue from this checkpoint. The values are on the CPU, or on the device that
        `map_location` names. `weights_only` has no effect: no pickle is read.
        """
        self._wait(local(path))
        info = found_at(path)
        if info is None:
            return super().load_checkpoint(path, map_location, weights_only)
        self._goes_on_from(info)
        # A checkpoint that a path leads to was saved by this class, for a Trainer or for Fabric.
        is_address = split_address(os.fspath(local(path))) is not None
        return read(info, map_location, for_trainer=is_address)

    def remove_checkpoint(self, path: Any) -> None:
        """Deletes it once the last save is durable; if that save fails, the checkpoint stays.

        Lightning removes a checkpoint as soon as it has asked for the save that replaces it.
        """
        place, saves = local(path), self._saves
        newest = self._newest.get(run_beside(place))
        if newest is None:
            self._remove(place, saves)
        else:
            remove = partial(self._remove, place, saves)
            newest.durable.add_done_callback(partial(_if_durable, remove))

    def teardown(self) -> None:
        """Waits for saves in flight."""
        while self._runs:
            run, ckpt = self._runs.popitem()
            ckpt.close()
            self._note_saved(run)
        self._held.close()
        super().teardown()

    def _remove(self, place: Path, saves: int) -> None:
        """Deletes the path's checkpoints of the first `saves` saves; its next use stays."""
        attempt = attempt_at(place)
        if attempt is None and not is_held(place):
            super().remove_checkpoint(place)
            return
        infos = [info for info in of_path(place) if not self._is_newer(info, saves)]
        if attempt is not None and attempt.name in {Path(info.path).name for info in infos}:
            place.unlink()
        for info in infos:
            _core.delete_checkpoint(info)

    def _is_newer(self, info: _core.CheckpointInfo, saves: int) -> bool:
        return info.tags.get(_WRITER) == self._writer and int(info.tags[_NUMBER]) > saves

    def _run_of(self, place: Path) -> df.Checkpointer:
        run = run_beside(place)
        if run not in self._runs:
            self._runs[run] = df.Checkpointer(run, ranks=None, **self._options)
            if run in self._stands_at:
                self._runs[run].continue_from(self._stands_at[run])
        return self._runs[run]

    def _goes_on_from(self, info: _core.CheckpointInfo) -> None:
        """Later saves to that run continue from the loaded checkpoint."""
        run = Path(info.path).parent
        self._stands_at[run] = info
        if run in self._runs:
            self._runs[run].continue_from(info)

    def _note_saved(self, run: Path) -> None:
        """A further fit() may continue from the state that is in memory."""
        infos = [] if run not in self._newest else _core.list_checkpoints(os.fspath(run))
        own = [info for info in infos if info.tags.get(_WRITER) == self._writer]
        if own:
            self._stands_at[run] = own[0]

    def _wait(self, place: Path) -> None:
        run = self._runs.get(run_beside(place))
        if run is not None:
            run.wait()


def _failed(step: int, error: Exception) -> df.SaveHandle:
    handle = df.SaveHandle(step, None)
    handle.fail(error)
    return handle


def _if_durable(action: Callable[[], object], future: Any) -> None:
    """Runs in the thread that completes saves: an error is logged, as a failed save is."""
    if future.exception() is None:
        try:
            action()
        except Exception as error:
            log.error("after the save of step %d: %s", future.result(), error)


def _publish(place: Path, tags: dict[str, str]) -> None:
    """Has the path lead to the checkpoint of these tags, and deletes those that are older."""
    infos = of_path(place)
    own = next(index for index, info in enumerate(infos) if tags.items() <= info.tags.items())
    fresh = place.with_name(f".{place.name}.{infos[own].attempt_id}")
    fresh.symlink_to(os.path.relpath(infos[own].path, place.parent))
    fresh.replace(place)
    for info in infos[own + 1 :]:
        _core.delete_checkpoint(info)
