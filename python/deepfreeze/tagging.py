"""Tags of checkpoints that exist."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from deepfreeze import _core
from deepfreeze.base.arguments import absolute
from deepfreeze.errors import CheckpointError


def tag(
    run: str | os.PathLike[str],
    step: int,
    tags: Mapping[str, str],
    *,
    remove: Sequence[str] = (),
) -> dict[str, str]:
    """Gives tags to a checkpoint, or takes them away; returns all that it has now.

    A checkpoint with such a tag is kept, whatever `keep` says, until its tags are removed. Tags of
    `save(tags=)` stay, and keep nothing. If the run has several checkpoints of this step, the
    newest gets the tags.
    Raises CheckpointError if there is no such step, or no such tag to remove.
    """
    for info in _core.list_checkpoints(os.fspath(absolute(run))):
        if info.step == step and not info.fault:
            return dict(_core.tag_checkpoint(info, dict(tags), list(remove)).tags)
    raise CheckpointError(f"tag: {absolute(run)} has no checkpoint of step {step}")
