"""Begins a run with a checkpoint of another one."""

from __future__ import annotations

import os
from pathlib import Path

from deepfreeze import _core
from deepfreeze.base.arguments import absolute
from deepfreeze.errors import CheckpointError


def fork(run: str | os.PathLike[str], step: int, new: str | os.PathLike[str]) -> Path:
    """Makes the directory `new` a run whose first checkpoint is `step` of `run`; returns its path.

    On one file system the files are linked: it takes no time and no room, and the checkpoint stays
    if `run` deletes its own. Elsewhere they are copied, and every block is checked. Training goes
    on from there by Checkpointer(new) and restore(). With several ranks, one process forks before
    the job begins. Raises CheckpointError if there is no such step, or if `new` has checkpoints.
    """
    for info in _core.list_checkpoints(os.fspath(absolute(run))):
        if info.step == step and not info.fault:
            _core.fork_checkpoint(info, os.fspath(absolute(new)))
            return absolute(new)
    raise CheckpointError(f"fork: {absolute(run)} has no checkpoint of step {step}")
