"""Findings in a run that deserve a look. The page shows them; its reader judges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepfreeze.exploring.kinds import OPTIMIZER, WEIGHTS
from deepfreeze.exploring.statistics import RunNumbers
from deepfreeze.exploring.tensor_reading import Form

EXPLODES = 10.0  # times the median of the changes before
VANISHES = 1e-4  # of the median change of all weights
LOST = 0.75  # of the elements changed; with more, little is lost
_STEPS_MIN = 5  # that a median needs
_WINDOW = 50  # steps
_MEDIANS_MAX = 100
_STILL_MIN = 3  # saves without a change
_ZEROS, _ELEMENTS_MIN = 0.99, 16
_TINY = 1e-12  # a relative change below it counts as none
_HIGHEST = {"F16": 65504.0, "F8_E4M3": 448.0, "F8_E5M2": 57344.0}
_NEAR_HIGHEST = 0.5
_SHORT = ("BF16", *_HIGHEST)
_EXPLAINED_MAX = 200  # flags of one kind


@dataclass
class Flag:
    """Something to look at, from one step on."""

    kind: str
    weight: str  # "bad" or "look"
    step: int
    attempt: str
    key: str  # of a tensor; "" if it is about the whole step
    text: str


class _Line:
    """The numbers of the present line of a run: steps in order, without abandoned ones."""

    def __init__(self, numbers: RunNumbers) -> None:
        self.columns = [place for place, step in enumerate(numbers.columns) if step.on_line]
        self.steps = [numbers.columns[place] for place in self.columns]
        self.forms, self.kinds = numbers.tensors()
        self._numbers = numbers
        norm, delta = self.of("norm"), self.of("delta")
        with np.errstate(divide="ignore", invalid="ignore"):
            self.change = np.where(delta == 0, 0, delta / norm)
        self.delta = delta
        self.elements = np.array([max(1, form.elements) for form in self.forms], np.float64)

    def of(self, quantity: str) -> NDArray[np.float64]:
        """[tensor, step]; one row for each of `forms`, even if steps were added meanwhile."""
        matrix = self._numbers.exact(quantity)
        return np.asarray(matrix[: len(self.forms), self.columns])

    def flag(self, kind: str, weight: str, place: int, key: str, text: str) -> Flag:
        step = self.steps[place]
        return Flag(kind, weight, step.step, step.attempt, key, text)

    @property
    def weights(self) -> list[int]:
        return [
            row
            for row, form in enumerate(self.forms)
            if self.kinds[row] == WEIGHTS and form.dtype.startswith(("F", "BF"))
        ]


def flags_of(numbers: RunNumbers) -> list[dict[str, Any]]:
    """All flags, those of damage first."""
    line = _Line(numbers)
    found = _of_steps(numbers)
    if line.forms and line.steps:
        for search in (_non_finite, _exploding, _near_highest, _dead, _vanishing, _lost):
            found += search(line)[:_EXPLAINED_MAX]
    return [vars(flag) for flag in sorted(found, key=lambda flag: flag.weight)]


def _of_steps(numbers: RunNumbers) -> list[Flag]:
    found = []
    for step in numbers.run.steps:
        if step.fault:
            found.append(Flag("damaged", "bad", step.step, step.attempt, "", step.fault))
        for tensor in step.diverged:
            ranks = ", ".join(map(str, tensor["ranks"]))
            text = f"the copies of ranks {ranks} differ from those of the others"
            found.append(
                Flag("replicas differ", "bad", step.step, step.attempt, tensor["tensor"], text)
            )
    return found


def _non_finite(line: _Line) -> list[Flag]:
    counts = line.of("non_finite")
    first: dict[int, int] = {}  # by row: the first step
    for row, place in zip(*np.nonzero(counts > 0), strict=True):
        first.setdefault(int(row), int(place))
    rows = sorted(first, key=lambda row: (first[row], line.kinds[row] != WEIGHTS))
    found = []
    for order, row in enumerate(rows):
        place = first[row]
        count = int(counts[row, place])
        text = f"{count:,} of {line.forms[row].elements:,} elements are NaN or infinite"
        if order == 0:
            others = sum(first[other] == place for other in rows) - 1
            text = f"first of the run: {text}; so are elements of {others} more tensors"
        found.append(line.flag("non-finite", "bad", place, line.forms[row].key, text))
    return found


def _exploding(line: _Line) -> list[Flag]:
    """A change that is many times the usual one of the tensor."""
    gaps = np.diff([step.step for step in line.steps], prepend=line.steps[0].step).astype(float)
    usual_gap = float(np.median(gaps[1:])) if len(gaps) > 1 else 1.0
    rows = line.weights
    change = line.change[rows] / np.maximum(1.0, gaps / max(usual_gap, 1.0))
    usual = _medians_before(change)
    with np.errstate(invalid="ignore"):
        jumps = (usual > _TINY) & np.isfinite(change) & (change > EXPLODES * usual)
    found = []
    for row, own, before, jumped in zip(rows, change, usual, jumps, strict=True):
        if jumped.any():
            place = int(np.argmax(jumped))
            text = f"changed by {own[place]:.2g} of its norm, {own[place] / before[place]:.0f} "
            text += "times what was usual"
            found.append(line.flag("exploding", "look", place, line.forms[row].key, text))
    return found


def _medians_before(change: Any) -> Any:
    """For each tensor and step: the median of the steps before, renewed at some of them."""
    count = change.shape[1]
    usual = np.full(change.shape, np.nan)
    renewal = max(1, count // _MEDIANS_MAX)
    for place in range(_STEPS_MIN + 1, count, renewal):
        before = change[:, max(1, place - _WINDOW) : place]
        known = np.isfinite(before).any(axis=1)
        usual[known, place : place + renewal] = np.nanmedian(before[known], axis=1)[:, None]
    return usual


def _near_highest(line: _Line) -> list[Flag]:
    most = np.fmax(np.abs(line.of("min")), np.abs(line.of("max")))
    found = []
    for row, form in enumerate(line.forms):
        limit = _HIGHEST.get(form.dtype)
        if limit is None or not (most[row] > _NEAR_HIGHEST * limit).any():
            continue
        place = int(np.argmax(most[row] > _NEAR_HIGHEST * limit))
        text = f"an element has the size {most[row, place]:.4g}; {form.dtype} ends at {limit:.4g}"
        found.append(line.flag("exploding", "look", place, form.key, text))
    return found


def _dead(line: _Line) -> list[Flag]:
    """Weights that no longer change, or are zeros now, though they were not before."""
    zeros = line.of("zeros")
    moving = _moving(line)
    found = []
    for row in line.weights:
        form = line.forms[row]
        share = zeros[row] / line.elements[row]
        still = _trailing(line.delta[row] == 0)
        if still >= _STILL_MIN and form.dtype not in _SHORT and _moves(form, moving):
            place = len(line.steps) - still
            text = f"the last {still} saves did not change it, though its optimizer state changes"
            found.append(line.flag("dead", "look", place, form.key, text))
        elif form.elements >= _ELEMENTS_MIN and share[-1] > _ZEROS and np.nanmin(share) < 0.5:
            place = int(np.nonzero(share > _ZEROS)[0][0])
            text = f"{share[-1]:.1%} of its elements are zero"
            found.append(line.flag("dead", "look", place, form.key, text))
    return found


def _moving(line: _Line) -> list[str]:
    """The optimizer's tensors that the last save changed."""
    return [
        form.key
        for row, form in enumerate(line.forms)
        if line.kinds[row] == OPTIMIZER and form.elements > 1 and line.delta[row, -1] > 0
    ]


def _moves(form: Form, moving: list[str]) -> bool:
    return any(f".{_local(form.key)}." in f"{key}." for key in moving)


def _vanishing(line: _Line) -> list[Flag]:
    rows = line.weights
    if len(rows) < 2:
        return []
    change = line.change[rows]
    known = np.isfinite(change).any(axis=0)
    usual = np.full(change.shape[1], np.nan)
    usual[known] = np.nanmedian(change[:, known], axis=0)
    found = []
    for row, own in zip(rows, change, strict=True):
        with np.errstate(invalid="ignore"):
            small = _trailing((own > 0) & (own < VANISHES * usual))
        if small >= _STEPS_MIN:
            text = f"changes by {own[-1]:.1g} of its norm; half of the weights by {usual[-1]:.1g} "
            text += "or more"
            key = line.forms[row].key
            found.append(line.flag("vanishing", "look", len(line.steps) - small, key, text))
    return found


def _lost(line: _Line) -> list[Flag]:
    """Updates so small that a short type rounds them away."""
    changed, moving = line.of("changed"), _moving(line)
    found = []
    for row in line.weights:
        form = line.forms[row]
        if form.dtype not in _SHORT or _has_master(line, form):
            continue
        shares = changed[row] / line.elements[row]
        known = shares[np.isfinite(shares)]
        if len(known) < _STILL_MIN or float(np.median(known)) >= LOST or not _moves(form, moving):
            continue
        place = int(np.nonzero(shares < LOST)[0][0])
        text = f"a save changes {np.median(known):.0%} of its elements; updates of the others are "
        text += f"less than {form.dtype} can hold, or there were none"
        found.append(line.flag("lost to rounding", "look", place, form.key, text))
    return found


def _has_master(line: _Line, form: Form) -> bool:
    """Whether a copy in a longer type takes the updates."""
    name = _local(form.key)
    return any(
        other.shape == form.shape
        and other.dtype in ("F32", "F64")
        and f".{name}." in f".{other.key}."
        and ("master" in other.key or "fp32" in other.key)
        for other in line.forms
    )


def _local(key: str) -> str:
    """A weight's name within its model: an optimizer's names have it, too."""
    return key.partition(".")[2] or key


def _trailing(marks: Any) -> int:
    """How many of the last marks are set in a row."""
    unset = np.nonzero(~marks)[0]
    return len(marks) - (int(unset[-1]) + 1 if len(unset) else 0)
