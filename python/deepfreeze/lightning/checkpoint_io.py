"""Keeps the checkpoints that Lightning makes in a run; each path is a link to one of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.fabric.utilities.apply_func import move_data_to_device

import deepfreeze as df
from deepfreeze import _core
from deepfreeze.lightning.held_paths import HeldPaths, is_held
from deepfreeze.names import KeyFilter
from deepfreeze.reading import load_tree
from deepfreeze.tested_versions import warn_where_untested

log = logging.getLogger("deepfreeze")

_RUN = "deepfreeze"  # the run's directory, beside the paths
_PATH, _WRITER, _NUMBER = "path", "writer", "save"  # tags


class DeepFreezeCheckpointIO(TorchCheckpointIO):  # type: ignore[misc]
    """Trainer(plugins=[DeepFreezeCheckpointIO()]): saves return once the checkpoint is copied.

    `options` are those of df.Checkpointer but for `every`, `keep`, `on_busy` and `ranks`: Lightning
    says when, deletes by remove_checkpoint(), and gives the checkpoint to the first process alone.
    Paths are those of a local directory, in which the run `deepfreeze` holds them all; a path leads
    to its checkpoint once that is durable. Until then a new one exists, so that ModelCheckpoint
    gives no name twice (held_paths.py). A save that fails, for want of the run too, is logged, and
    leaves what the path was. Other files are read and removed as Lightning does.

    For the trainer's thread.
    """

    def __init__(self, **options: Any) -> None:
        warn_where_untested("lightning")
        refused = sorted({"every", "keep", "on_busy", "ranks"} & options.keys())
        if refused:
            raise TypeError(f"DeepFreezeCheckpointIO: {', '.join(refused)}: Lightning decides that")
        self._options = options
        self._runs: dict[Path, df.Checkpointer] = {}
        self._newest: dict[Path, df.SaveHandle] = {}  # of each run
        self._held = HeldPaths()
        self._writer = uuid4().hex
        self._saves = 0

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        """EncodeError, before anything is written, names what can't be stored."""
        if storage_options is not None:
            raise TypeError("DeepFreezeCheckpointIO.save_checkpoint: it has no storage_options")
        place = _local(path)
        self._saves += 1
        self._newest[_run_beside(place)] = handle = self._save(checkpoint, place)
        handle.durable.add_done_callback(lambda _: self._held.let_go(place))

    def _save(self, checkpoint: Any, place: Path) -> df.SaveHandle:
        step = int(checkpoint.get("global_step", 0))
        tags = {_PATH: place.name, _WRITER: self._writer, _NUMBER: str(self._saves)}
        try:
            run = self._run_of(place)
            self._held.hold(place)
        except (df.CheckpointError, OSError) as error:
            if self._options.get("strict_saves"):
                raise
            log.error("save of step %d failed: %s", step, error)
            return _failed(step, error)
        try:
            handle = run.save(step, checkpoint, tags=tags)
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
        """What was saved, every block checked; CorruptError where it does not verify.

        On the CPU, or a device that `map_location` names. `weights_only` is nothing here: no pickle
        is read.
        """
        place = _local(path)
        self._wait(place)
        if is_held(place) and place.exists():
            raise df.CheckpointError(f"{place} is still being saved", code="not_found")
        info = _linked(place)
        if info is None:
            return super().load_checkpoint(path, map_location, weights_only)
        state = load_tree(info, KeyFilter(None))
        moves = isinstance(map_location, (str, torch.device))
        return move_data_to_device(state, torch.device(map_location)) if moves else state

    def remove_checkpoint(self, path: Any) -> None:
        """Deletes it once what was saved last is durable; where that has failed it stays.

        Lightning removes a checkpoint when the one that replaces it has been given to be saved.
        """
        place, saves = _local(path), self._saves
        newest = self._newest.get(_run_beside(place))
        if newest is None:
            self._remove(place, saves)
        else:
            remove = partial(self._remove, place, saves)
            newest.durable.add_done_callback(partial(_if_durable, remove))

    def teardown(self) -> None:
        """Waits for what is in flight."""
        while self._runs:
            self._runs.popitem()[1].close()
        self._held.close()
        super().teardown()

    def _remove(self, place: Path, saves: int) -> None:
        """What was saved to it by the time of that many saves: it may have been used again."""
        attempt = _attempt(place)
        if attempt is None and not is_held(place):
            super().remove_checkpoint(place)
            return
        infos = [info for info in _of_path(place) if not self._is_newer(info, saves)]
        if attempt is not None and attempt.name in {Path(info.path).name for info in infos}:
            place.unlink()
        for info in infos:
            _core.delete_checkpoint(info)

    def _is_newer(self, info: _core.CheckpointInfo, saves: int) -> bool:
        return info.tags.get(_WRITER) == self._writer and int(info.tags[_NUMBER]) > saves

    def _run_of(self, place: Path) -> df.Checkpointer:
        run = _run_beside(place)
        if run not in self._runs:
            self._runs[run] = df.Checkpointer(run, ranks=None, **self._options)
        return self._runs[run]

    def _wait(self, place: Path) -> None:
        run = self._runs.get(_run_beside(place))
        if run is not None:
            run.wait()


def _local(path: Any) -> Path:
    text = os.fspath(path)
    if "://" in text:
        raise ValueError(f"{text}: DeepFreezeCheckpointIO keeps checkpoints in local directories")
    return Path(os.path.abspath(text))


def _run_beside(place: Path) -> Path:
    return place.parent / _RUN


def _failed(step: int, error: Exception) -> df.SaveHandle:
    handle = df.SaveHandle(step, None)
    handle.fail(error)
    return handle


def _if_durable(action: Callable[[], object], future: Any) -> None:
    """By the thread that completes saves: what fails is logged, as a failed save is."""
    if future.exception() is None:
        try:
            action()
        except Exception as error:
            log.error("after the save of step %d: %s", future.result(), error)


def _of_path(place: Path) -> list[_core.CheckpointInfo]:
    """Newest first."""
    infos = _core.list_checkpoints(os.fspath(_run_beside(place)))
    return [info for info in infos if info.tags.get(_PATH) == place.name]


def _publish(place: Path, tags: dict[str, str]) -> None:
    """Has the path lead to the checkpoint of these tags, and deletes those that are older."""
    infos = _of_path(place)
    own = next(index for index, info in enumerate(infos) if tags.items() <= info.tags.items())
    fresh = place.with_name(f".{place.name}.{infos[own].attempt_id}")
    fresh.symlink_to(os.path.relpath(infos[own].path, place.parent))
    fresh.replace(place)
    for info in infos[own + 1 :]:
        _core.delete_checkpoint(info)


def _linked(place: Path) -> _core.CheckpointInfo | None:
    """The checkpoint that a path leads to; None for what is not ours."""
    attempt = _attempt(place)
    if attempt is None:
        return None
    infos = _core.list_checkpoints(os.fspath(attempt.parent))
    found = next((info for info in infos if Path(info.path).name == attempt.name), None)
    if found is None:
        raise df.CheckpointError(f"{place}: its checkpoint {attempt} is gone", code="not_found")
    return found


def _attempt(place: Path) -> Path | None:
    """Where a path of ours leads to, through other links too; a directory, while it is there."""
    attempt = Path(os.path.realpath(place))
    is_ours = attempt.parent.name == _RUN and attempt.name.startswith("step-")
    return attempt if is_ours and not attempt.is_file() else None
