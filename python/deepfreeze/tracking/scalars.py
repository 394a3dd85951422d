"""Metrics as TensorBoard's scalars."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepfreeze.base.arguments import absolute
from deepfreeze.errors import make_error
from deepfreeze.exploring.runs import Run
from deepfreeze.exploring.steps import Step
from deepfreeze.tracking.lineage import Paths, line_of, metrics_of, runs_to_export

_NAME = "events.out.tfevents.deepfreeze"  # a later export replaces it, and touches no other file
_VERSION = "brain.Event:2"  # of the format, as TensorBoard's own writer begins a file


def to_tensorboard(runs: Paths, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes the metrics of runs for `tensorboard --logdir FOLDER`; the files, one for each run.

    runs: A run, a directory with runs below it, or a list of these. Runs that they started from
      are written, too; each is a run of TensorBoard, named as on the page of `deepfreeze explore`.
    folder: Gets the files; made if it does not exist.

    Each committed step of a run's present line gives a point of each of its metrics, at the time of
    the save. A fork begins at the step that it started from. A second call replaces the files of
    the first, and touches no others; a TensorBoard that runs shows them once it is started anew.
    Runs are only read, also while they are written to; one call at a time for a folder.

    Raises CheckpointError if the package `tensorboard` is not installed, a run can't be read, or
    the folder can't be written.
    """
    record_writer = _record_writer()
    found = runs_to_export(runs)
    target = absolute(folder, "folder")
    try:
        return [_write(run, target / run.name, record_writer) for run in found]
    except OSError as error:
        raise make_error("io", f"export to TensorBoard in {target}: {error}") from error


def _record_writer() -> Any:
    try:
        # Its EventFileWriter would import all of TensorFlow, if that is installed.
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as error:
        raise make_error(
            "unsupported",
            f"export to TensorBoard: {error}; its package is needed here: pip install tensorboard",
        ) from error
    return RecordWriter


def _write(run: Run, folder: Path, record_writer: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / ".deepfreeze.new"
    with new.open("wb") as file:
        writer = record_writer(file)
        for event in _events(run):
            writer.write(event.SerializeToString())
    os.replace(new, folder / _NAME)
    return folder / _NAME


def _events(run: Run) -> Iterator[Any]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    steps = line_of(run)
    yield Event(wall_time=_seconds(steps[0]) if steps else 0, file_version=_VERSION)
    for step in steps:
        values = [
            Summary.Value(tag=name, simple_value=value) for name, value in metrics_of(step).items()
        ]
        yield Event(wall_time=_seconds(step), step=step.step, summary=Summary(value=values))


def _seconds(step: Step) -> float:
    return step.time_micros / 1e6
