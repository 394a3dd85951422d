"""The paths of Lightning that lead to checkpoints of a run, and the reading of these."""

from __future__ import annotations

import os
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.apply_func import move_data_to_device
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.core import saving

import deepfreeze as df
from deepfreeze import _core
from deepfreeze.base.names import KeyFilter
from deepfreeze.restoring.chosen import point_in, split_address
from deepfreeze.restoring.restorer import load_tree
from deepfreeze.trainers.lightning.held_paths import is_held

_RUN = "deepfreeze"  # the run's directory, beside the paths
PATH = "path"  # a tag


def local(path: Any) -> Path:
    text = os.fspath(path)
    if "://" in text:
        raise ValueError(f"{text}: DeepFreezeCheckpointIO keeps checkpoints in local directories")
    return Path(os.path.abspath(text))


def run_beside(place: Path) -> Path:
    return place.parent / _RUN


def of_path(place: Path) -> list[_core.CheckpointInfo]:
    """The checkpoints that were saved to a path, newest first."""
    infos = _core.list_checkpoints(os.fspath(run_beside(place)))
    return [info for info in infos if info.tags.get(PATH) == place.name]


def found_at(path: Any) -> _core.CheckpointInfo | None:
    """The checkpoint of a path or of RUN@STEP, RUN@best...; None for other files."""
    place = local(path)
    address = split_address(os.fspath(place))
    if address is not None:
        infos = point_in(os.fspath(address[0]), address[1])
        if not infos:
            raise df.CheckpointError(f"{address[0]} holds no checkpoint", code="not_found")
        return infos[0]
    if is_held(place) and place.exists():
        raise df.CheckpointError(f"{place} is still being saved", code="not_found")
    return linked(place)


def read(info: _core.CheckpointInfo, map_location: Any, *, for_trainer: bool) -> Any:
    """The checkpoint's values, on the CPU or on the device that `map_location` names.

    `for_trainer`: CheckpointError unless a Trainer made it, since a Trainer would miss its parts.
    """
    is_first = getattr(rank_zero_only, "rank", 0) == 0
    state = load_tree(info, KeyFilter(None), shows=is_first)
    if for_trainer and not (isinstance(state, dict) and "state_dict" in state):
        run = os.path.dirname(info.path)
        raise df.CheckpointError(
            f"{info.path} is no checkpoint that Lightning made, but one of DeepFreezeCallback or "
            "df.Checkpointer: the callback resumes from it, and weights are loaded by "
            f"model.load_state_dict(df.Checkpointer({run!r}).load({info.step})['model'])",
            code="unsupported",
        )
    moves = isinstance(map_location, (str, torch.device))
    return move_data_to_device(state, torch.device(map_location)) if moves else state


def linked(place: Path) -> _core.CheckpointInfo | None:
    """The checkpoint that a path leads to; None for other files."""
    attempt = attempt_at(place)
    if attempt is None:
        return None
    infos = _core.list_checkpoints(os.fspath(attempt.parent))
    found = next((info for info in infos if Path(info.path).name == attempt.name), None)
    if found is None:
        raise df.CheckpointError(f"{place}: its checkpoint {attempt} is gone", code="not_found")
    return found


def attempt_at(place: Path) -> Path | None:
    """The checkpoint's directory to which a path leads, even through more links; else None."""
    attempt = Path(os.path.realpath(place))
    is_ours = attempt.parent.name == _RUN and attempt.name.startswith("step-")
    return attempt if is_ours and not attempt.is_file() else None


def _take_part_in_loading() -> None:
    """Has load_from_checkpoint() read our checkpoints too.

    Lightning opens the path as a file, by a function that it lets nobody replace otherwise.
    """
    read_file = saving.pl_load

    @wraps(read_file)
    def load(path: Any, map_location: Any = None, **options: Any) -> Any:
        is_path = isinstance(path, (str, os.PathLike)) and "://" not in os.fspath(path)
        info = found_at(path) if is_path else None
        if info is None:
            return read_file(path, map_location, **options)
        return read(info, map_location, for_trainer=True)

    saving.pl_load = load


_take_part_in_loading()
