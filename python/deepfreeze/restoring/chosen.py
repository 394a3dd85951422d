"""Which checkpoint a caller means: a step, the latest or the best; and addresses as RUN@best."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from pathlib import Path

from deepfreeze import _core
from deepfreeze.errors import CheckpointError

Step = int | str | None
"""A number, "latest" (as None), "best", "best:METRIC" or "best:METRIC:min|max"."""
Rule = tuple[str, str, int]
"""Like `best` of keep(): the metric, "min" or "max", and how many."""


def is_newest(step: Step) -> bool:
    """Whether it names no checkpoint, so that an older one may replace a damaged one."""
    return step is None or step == "latest"


def may_change(step: Step) -> bool:
    """Whether another save can change which checkpoint this is."""
    return step is None or isinstance(step, str)


def checked(step: Step) -> Step:
    """Checks a step. CheckpointError (invalid_argument) for any other text, else TypeError."""
    if isinstance(step, str):
        if step != "latest":
            _parsed(step)
        return step
    return None if step is None else operator.index(step)


def at_step(
    infos: list[_core.CheckpointInfo], step: Step, rule: Callable[[], Rule | None]
) -> list[_core.CheckpointInfo]:
    """All checkpoints, newest first, or the chosen one alone; none if there are none.

    A step may exist on several lines; its newest checkpoint is chosen. `rule` gives the run's rule
    for "best".
    """
    step = checked(step)
    if is_newest(step):
        return infos
    if isinstance(step, str):
        metric, better = _parsed(step)
        return [_core.best_of(infos, metric, better, rule())] if infos else []
    found = next((info for info in infos if info.step == step), None)
    if found is None:
        steps = sorted({info.step for info in infos})
        raise CheckpointError(f"no checkpoint of step {step}; there are {steps}", code="not_found")
    return [found]


def point_in(run: str, step: Step) -> list[_core.CheckpointInfo]:
    """As at_step(), for a run that another process writes."""
    return at_step(_core.list_checkpoints(run), step, recorded_rule(run))


def recorded_rule(run: str | os.PathLike[str]) -> Callable[[], Rule | None]:
    """The `best` of keep() that the run's newest claim records, read when it is needed."""
    return lambda: _core.recorded_best(os.fspath(run))


def split_address(text: str) -> tuple[Path, Step] | None:
    """The run and the checkpoint of RUN@STEP, RUN@latest or RUN@best...; None for a plain path.

    As on the command line, an existing path is taken whole; otherwise the last "@" with a directory
    in front of it counts, since names of metrics may contain one too.
    """
    at = -1 if os.path.lexists(text) else text.rfind("@")
    while at > 0 and not os.path.isdir(text[:at]):
        at = text.rfind("@", 0, at)
    if at <= 0:
        return None
    name = text[at + 1 :]
    return Path(text[:at]), int(name) if name.isdecimal() else checked(name)


def _parsed(step: str) -> tuple[str | None, str | None]:
    if step == "best" or step.startswith("best:"):
        return _core.parse_best(step)
    raise CheckpointError(
        f"step {step!r} is no number and not 'latest', 'best', 'best:METRIC' or "
        "'best:METRIC:min|max'",
        code="invalid_argument",
    )
