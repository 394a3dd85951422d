"""The steps of one run: each one's contents, its fate, and why it is still there."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from deepfreeze import _core

# Errors that a record or a tree of values raises if its contents are not as they should be.
ODD = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip


@dataclass
class Keep:
    """The rules by which checkpoints stay, as the newest claim of the run has them."""

    last: int | None = None
    every: int | None = None
    best: tuple[str, str, int] | None = None  # metric, "min" or "max", count

    @staticmethod
    def of(record: dict[str, Any]) -> Keep:
        """The rules that a generation record has (docs/format.md). ODD if it has others."""
        best = record.get("best")
        rule = None
        if best is not None:
            if best["better"] not in ("min", "max"):
                raise ValueError(best["better"])
            rule = (str(best["metric"]), str(best["better"]), _positive(best["count"]))
        last, every = (
            None if record.get(name) is None else _positive(record[name])
            for name in ("last", "every")
        )
        return Keep(last, every, rule)

    def text(self) -> str:
        """ "the last 3, every 100th, the best 1 by loss (min)"; "" if all stay."""
        words = []
        if self.last:
            words.append(f"the last {self.last}")
        if self.every:
            words.append(f"every {self.every}th step")
        if self.best:
            words.append(f"the best {self.best[2]} by {self.best[0]} ({self.best[1]})")
        return ", ".join(words)


def _positive(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(value)
    return value


@dataclass
class Step:
    """One attempt at saving one step."""

    step: int
    attempt: str
    state: str  # "committed", "abandoned", "bad", "aborted", "undecided" or "deleted"
    generation: int = 0
    save: int = 0
    bytes: int = 0
    time_micros: int = 0
    world_size: int = 1
    newest: bool = False
    best: bool = False
    metrics: dict[str, float | str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    tagged: bool = False  # some were given after the save, which keeps it
    non_finite: int | None = None
    diverged: list[dict[str, Any]] = field(default_factory=list)
    fault: str = ""
    note: str = ""  # why it can't be read, though nothing says that it is damaged
    kept: list[str] = field(default_factory=list)
    read_micros: int = 0  # when all its bytes were last read and checked; 0: never
    read_good: bool = False
    info: _core.CheckpointInfo | None = None  # None unless it can be opened

    @property
    def on_line(self) -> bool:
        """Whether the present continuation of the run passed through it."""
        return self.info is not None and not self.info.abandoned

    def document(self) -> dict[str, Any]:
        """The step as the page and `--json` get it."""
        return {name: value for name, value in vars(self).items() if name != "info"}


def steps_of(listed: list[dict[str, Any]], infos: list[_core.CheckpointInfo]) -> list[Step]:
    """Joins what `ls` says with the checkpoints that can be opened; the oldest first."""
    by_attempt = {info.attempt_id: info for info in infos if not info.fault}
    steps = [_step(row, by_attempt.get(row["attempt"])) for row in listed]
    return sorted(steps, key=lambda step: (step.generation, step.save, step.step))


def _step(row: dict[str, Any], info: _core.CheckpointInfo | None) -> Step:
    committed = row["state"] == "committed"
    step = Step(row["step"], row["attempt"], _state(row), fault=row.get("fault", ""))
    if "generation" not in row:
        return step
    step.generation, step.save = row["generation"], row["save"]
    step.bytes, step.time_micros = row["bytes"], row["time_micros"]
    step.world_size = row["world_size"]
    step.newest, step.best = row["flag"] == "newest", bool(row["best"])
    step.metrics, step.tags = row["metrics"], row["tags"]
    step.tagged = bool(row["given_tags"]) or "tags_fault" in row
    step.non_finite, step.diverged = row.get("non_finite"), row.get("diverged", [])
    step.info = info if committed else None
    return step


def _state(row: dict[str, Any]) -> str:
    if row["state"] == "fault":
        return "bad"
    if row["flag"] == "abandoned":
        return "abandoned"
    return str(row["state"])


def mark_kept(steps: list[Step], keep: Keep) -> None:
    """Notes which rules keep each step of the present line. None of this decides a deletion."""
    line = [step for step in steps if step.on_line]
    if keep.last:
        for step in line[-keep.last :]:
            step.kept.append("last")
    for step in line:
        if keep.every and step.step % keep.every == 0:
            step.kept.append("every")
        if step.newest and not step.kept:
            step.kept.append("newest")
    if keep.best:
        for step in _best(line, *keep.best):
            step.kept.append("best")
    for step in steps:
        if step.tagged:
            step.kept.append("tag")


def _best(line: list[Step], metric: str, better: str, count: int) -> list[Step]:
    """First by the metric, without states that hold NaN; if two are equal, the newer."""
    found = [
        (float(step.metrics[metric]), place)
        for place, step in enumerate(line)
        if metric in step.metrics and not step.non_finite
    ]
    found = [pair for pair in found if not math.isnan(pair[0])]
    sign = 1 if better == "min" else -1
    found.sort(key=lambda pair: (sign * pair[0], -pair[1]))
    return [line[place] for _, place in found[:count]]
