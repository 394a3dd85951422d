"""Texts about a run for people: in a prompt, in a notebook, in the log."""

from __future__ import annotations

import contextlib
import html
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deepfreeze import _core
from deepfreeze.base.progress import human_bytes

if TYPE_CHECKING:
    from deepfreeze.interval.policy import Keep, SavePolicy
    from deepfreeze.restoring.restorer import RestoreReport
    from deepfreeze.saving.completer import Completer
    from deepfreeze.saving.handle import SaveHandle

log = logging.getLogger("deepfreeze")

_ROWS_MAX = 50  # of a table in a notebook


class CheckpointList(list[_core.CheckpointInfo]):
    """Checkpoints, newest first: a list that prints as a table."""

    def __str__(self) -> str:
        return "\n".join(_lines(_table(self))) if self else "no checkpoint"

    def _repr_html_(self) -> str:
        return _html_table(_table(self))


class Described:
    """The texts of a checkpointer. Its repr reads no disk, and never raises."""

    path: Path
    last_restore: RestoreReport | None
    _policy: SavePolicy
    _keep: Keep
    _completer: Completer
    _closed: bool
    _ranks: _core.Ranks | None

    @property
    def _is_first(self) -> bool:
        return self._ranks is None or self._ranks.rank == 0

    @property
    def failed_saves(self) -> int:
        """How many saves have failed since this checkpointer was opened."""
        return self._completer.failed_saves

    def checkpoints(self) -> CheckpointList:
        """All committed checkpoints, newest first."""
        raise NotImplementedError

    def __repr__(self) -> str:
        try:
            text = "; ".join([str(self.path), *self._facts()])
        except AttributeError:  # __init__() has not ended
            text = "not opened"
        return f"<{type(self).__name__} {text}>"

    def _facts(self) -> list[str]:
        facts = [f"saves {self._policy}", f"keeps {self._keep}"]
        if self.last_restore is not None:
            facts.append(f"restored step {self.last_restore.step}")
        if self._completer.failed_saves:
            facts.append(f"{self._completer.failed_saves} saves failed")
        return [*facts, "closed"] if self._closed else facts

    def _repr_html_(self) -> str:
        title = f"<p><code>{html.escape(repr(self))}</code></p>"
        with contextlib.suppress(Exception):  # a run that can't be read, a forked child
            return title + self.checkpoints()._repr_html_()
        return title


class SaveLines:
    """Logs one line at INFO for each durable save, in the thread that completes saves."""

    def __init__(self, path: Path, ranks: _core.Ranks | None) -> None:
        self._path = path
        self._is_first = ranks is None or ranks.rank == 0
        self._part = " (rank 0's part)" if ranks is not None and ranks.world_size > 1 else ""

    def saved(self, handle: SaveHandle) -> None:
        """Logs on the first rank alone. A handler that raises harms neither save nor thread."""
        if not (self._is_first and log.isEnabledFor(logging.INFO)):
            return
        with contextlib.suppress(Exception):
            status = handle.status()
            log.info(
                "saved step %d to %s: %s%s durable after %.2f s (%s/s), training waited %.1f ms",
                status.step,
                self._path,
                human_bytes(status.bytes),
                self._part,
                status.durable_seconds,
                human_bytes(int(status.bytes / max(status.durable_seconds, 1e-9))),
                (status.stall_seconds + status.fence_seconds) * 1e3,
            )


def _table(infos: Sequence[_core.CheckpointInfo]) -> list[list[str]]:
    """The table's head and rows, as text."""
    metrics = sorted({name for info in infos for name in info.metrics})
    rows = [["step", "saved (UTC)", "size", *metrics, ""]]
    for info in infos:
        values = [f"{info.metrics[each]:.6g}" if each in info.metrics else "" for each in metrics]
        rows.append([str(info.step), _time(info), human_bytes(info.bytes), *values, _mark(info)])
    return rows


def _time(info: _core.CheckpointInfo) -> str:
    if not info.wall_micros:  # its record can't be read
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(info.wall_micros // 1_000_000))


def _mark(info: _core.CheckpointInfo) -> str:
    if info.fault:
        return f"faulty: {info.fault}"
    marks = ["abandoned"] if info.abandoned else []
    if info.non_finite:
        marks.append(f"{info.non_finite} values NaN or infinite")
    if info.diverged:
        marks.append("ranks differed")
    return ", ".join(marks)


def _lines(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.rjust, row[:-1], widths)) + f"  {row[-1]}" for row in rows]


def _html_table(rows: list[list[str]]) -> str:
    if len(rows) == 1:
        return "<p>no checkpoint</p>"
    head = "".join(f"<th>{html.escape(text)}</th>" for text in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>"
        for row in rows[1 : 1 + _ROWS_MAX]
    )
    more = len(rows) - 1 - _ROWS_MAX
    rest = f"<p>and {more} older ones</p>" if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"
