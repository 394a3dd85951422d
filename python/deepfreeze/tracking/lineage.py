"""The runs that a caller names, parents before their forks."""

from __future__ import annotations

import os
from collections.abc import Sequence

from deepfreeze.base.arguments import absolute
from deepfreeze.errors import make_error
from deepfreeze.exploring.discovering import runs_of
from deepfreeze.exploring.runs import Run, read_runs
from deepfreeze.exploring.steps import Step

Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]


def runs_to_export(paths: Paths) -> list[Run]:
    """The runs at these paths or below them, and those that they started from.

    Raises CheckpointError if one can't be read: nothing is exported by halves.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    runs = read_runs(runs_of([os.fspath(absolute(path, "runs")) for path in given]))
    for run in runs:
        if run.fault:
            raise make_error(
                "corrupt",
                f"export {run.path}: the run can't be read: {run.fault}; mend it "
                "(`deepfreeze doctor`), or name the other runs alone",
            )
    by_id = {run.id: run for run in runs}
    return sorted(runs, key=lambda run: _depth(run, by_id))


def _depth(run: Run, by_id: dict[str, Run]) -> int:
    """How many of the runs it descends from."""
    seen: set[str] = set()
    while run.id not in seen and run.parents and run.parents[0].run is not None:
        seen.add(run.id)
        run = by_id[run.parents[0].run]
    return len(seen)


def line_of(run: Run) -> list[Step]:
    """The committed steps of the run's present line, in order."""
    return [step for step in run.committed if step.on_line and not step.fault]


def metrics_of(step: Step) -> dict[str, float]:
    """Metrics as numbers: JSON has text for those that are not finite."""
    return {name: float(value) for name, value in step.metrics.items()}
