"""The numbers of all steps of one run: from the cache, or computed once."""

from __future__ import annotations

import contextlib
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepfreeze.errors import CheckpointError
from deepfreeze.exploring.cache import (
    Cache,
    StepNumbers,
    StoredStep,
    Table,
    digest_of,
    name_of,
)
from deepfreeze.exploring.runs import Run
from deepfreeze.exploring.step_numbers import DAMAGE, OnBytes, compute, from_ranges
from deepfreeze.exploring.steps import ODD, Step
from deepfreeze.exploring.tensor_numbers import BINS, QUANTITIES
from deepfreeze.exploring.tensor_reading import Form

Matrix = NDArray[np.float32]
_MATRICES_HELD = 3


class _InMemory:
    """Numbers that the cache could not keep, or that are not to be kept."""

    def __init__(self, step: StepNumbers) -> None:
        self._step, self.table = step, step.table

    def row(self, place: int) -> NDArray[np.float64]:
        return np.asarray(self._step.rows[place])

    def histograms(self) -> NDArray[np.uint8]:
        return np.asarray(self._step.histograms)


class _Provisional(_InMemory):
    """The numbers of a header, until the data is read."""


class RunNumbers:
    """For the threads that serve, and the one that computes."""

    def __init__(self, run: Run, runs: dict[str, Run], cache: Cache) -> None:
        self.run = run
        self.columns = run.committed
        self._cache = cache
        self._before = _steps_before(run, runs)
        self._has_ranges = False
        self._found: list[StoredStep | _InMemory | None] = [None] * len(self.columns)
        self._lock = Lock()  # protects all below
        self._table: Table | None = None  # of the step that was added last
        self._tensors: dict[str, int] = {}
        self._forms: list[Form] = []
        self._kinds: list[str] = []
        self._matrices: dict[tuple[str, int], Matrix] = {}
        self.revision = 0  # grows with each step that is added

    def load(self) -> None:
        """Takes the numbers that the cache has."""
        for column, step in enumerate(self.columns):
            if self._found[column] is None:
                found = self._cache.find(self.run.run_id or "unknown", self._name(step))
                if found is not None:
                    self._add(column, found)

    @property
    def missing(self) -> list[int]:
        """The columns that are not known and can be read."""
        return [
            column
            for column, step in enumerate(self.columns)
            if not step.fault and not step.note and self._is_missing(self._found[column])
        ]

    @staticmethod
    def _is_missing(found: StoredStep | _InMemory | None) -> bool:
        return found is None or isinstance(found, _Provisional)

    def read_ranges(self) -> None:
        """Takes ranges and counts of NaN of steps that are not known from their headers, once."""
        if self._has_ranges:
            return
        self._has_ranges = True
        for column in self.missing:
            info = self.columns[column].info
            if info is None or info.non_finite is None:  # saved without statistics
                continue
            with contextlib.suppress(CheckpointError, *ODD):
                self._add(column, _Provisional(from_ranges(info, self._table)))

    @property
    def missing_bytes(self) -> int:
        """The bytes that compute() of all of them would read of their own."""
        return sum(self.columns[column].bytes for column in self.missing)

    def compute(self, column: int, on_bytes: OnBytes) -> None:
        """Computes one step and keeps it. Why it can't be read is noted at the step."""
        step = self.columns[column]
        before = self._before.get(step.attempt)
        if step.info is None:
            return
        try:
            done = compute(step.info, before.info if before else None, on_bytes, self._table)
        except CheckpointError as error:
            self._note_failure(step, error)
            return
        except ODD as error:
            self._mark_bad(step, f"it can't be understood: {error!r}")
            return
        if done.damaged:
            self._mark_bad(step, "; ".join(list(dict.fromkeys(done.damaged.values()))[:3]))
        if not done.is_whole:
            self._add(column, _InMemory(done.numbers))
            return
        kept = self._cache.keep(self.run.run_id or "unknown", self._name(step), done.numbers)
        self._add(column, kept or _InMemory(done.numbers))

    def _note_failure(self, step: Step, error: CheckpointError) -> None:
        if error.code in DAMAGE:
            self._mark_bad(step, str(error))
            return
        if error.code in ("gone", "not_found"):
            step.state, step.note = "deleted", "it was deleted meanwhile"
        else:
            step.note = f"it can't be read now: {error}"
        with self._lock:
            self.revision += 1

    def _mark_bad(self, step: Step, cause: str) -> None:
        step.state, step.fault = "bad", cause
        with self._lock:
            self.revision += 1

    def _name(self, step: Step) -> str:
        before = self._before.get(step.attempt)
        digest = digest_of(step.info.path) if step.info else ""
        return name_of(step.attempt, digest, before.attempt if before else "")

    def _add(self, column: int, found: StoredStep | _InMemory) -> None:
        with self._lock:
            if found.table is not self._table:
                self._note(found.table)
            self._found[column] = found
            self.revision += 1

    def _note(self, table: Table) -> None:
        """Takes the tensors of a table, with the lock held."""
        self._table = table
        for form, kind in zip(table.forms, table.kinds, strict=True):
            place = self._tensors.setdefault(form.key, len(self._forms))
            if place == len(self._forms):
                self._forms.append(form)
                self._kinds.append(kind)
            else:
                self._forms[place] = form

    def tensors(self) -> tuple[list[Form], list[str]]:
        """All tensors of all steps so far, as the step added last has them; their kinds."""
        with self._lock:
            return list(self._forms), list(self._kinds)

    def matrix(self, quantity: str) -> Matrix:
        """[tensor, column] of one quantity; NaN if it is not known."""
        with self._lock:
            held = self._matrices.get((quantity, self.revision))
            if held is not None:
                return held
            revision = self.revision
        matrix = self._matrix(quantity, np.dtype(np.float32))
        with self._lock:
            while len(self._matrices) >= _MATRICES_HELD:
                del self._matrices[next(iter(self._matrices))]
            self._matrices[quantity, revision] = matrix
        return matrix

    def exact(self, quantity: str) -> NDArray[np.float64]:
        """As matrix(), with doubles: counts beyond 2^24, and numbers that float32 can't hold."""
        return self._matrix(quantity, np.dtype(np.float64))

    def _matrix(self, quantity: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        with self._lock:
            found, places = list(self._found), dict(self._tensors)
        return _matrix(QUANTITIES.index(quantity), found, places, dtype)

    def exact_series(self, tensor: int) -> NDArray[np.float64]:
        """[quantity, column] of one tensor, with doubles, read from each step's file."""
        series = np.full((len(QUANTITIES), len(self.columns)), np.nan)
        for column, (found, place) in self._places(tensor).items():
            for quantity in range(len(QUANTITIES)):
                row = found.row(quantity)
                if row is not None:
                    series[quantity, column] = row[place]
        return series

    def histograms(self, tensor: int) -> NDArray[np.uint8]:
        """[column, bin] of one tensor; zeros if it is not known."""
        bins = np.zeros((len(self.columns), BINS), np.uint8)
        for column, (found, place) in self._places(tensor).items():
            rows = found.histograms()
            if rows is not None:
                bins[column] = rows[place]
        return bins

    def histograms_of_all(self, columns: list[int]) -> NDArray[np.uint8]:
        """[tensor, column, bin] of some columns, each read once; zeros if it is not known."""
        with self._lock:
            found, places = list(self._found), dict(self._tensors)
        bins = np.zeros((len(places), len(columns), BINS), np.uint8)
        for place, column in enumerate(columns):
            step = found[column]
            rows = None if step is None else step.histograms()
            if step is not None and rows is not None:
                bins[[places[form.key] for form in step.table.forms], place] = rows
        return bins

    def _places(self, tensor: int) -> dict[int, tuple[StoredStep | _InMemory, int]]:
        """The numbers of each step that has the tensor, and its place in them, by column."""
        key = self._forms[tensor].key
        places: dict[int, dict[str, int]] = {}  # by the identity of a table
        found = {}
        for column, step in enumerate(self._found):
            if step is None:
                continue
            table = step.table
            if id(table) not in places:
                places[id(table)] = {form.key: place for place, form in enumerate(table.forms)}
            if key in places[id(table)]:
                found[column] = (step, places[id(table)][key])
        return found


def _matrix(
    quantity: int,
    found: list[StoredStep | _InMemory | None],
    places: dict[str, int],
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    by_column = np.full((len(found), len(places)), np.nan, dtype)
    orders: dict[int, NDArray[np.intp]] = {}  # by the identity of a table
    for column, step in enumerate(found):
        row = None if step is None else step.row(quantity)
        if step is None or row is None:
            continue
        table = step.table
        if id(table) not in orders:
            order = [places[form.key] for form in table.forms]
            orders[id(table)] = np.array(order, np.intp)
        with np.errstate(over="ignore"):
            by_column[column, orders[id(table)]] = row
    return np.ascontiguousarray(by_column.T)


def _steps_before(run: Run, runs: dict[str, Run]) -> dict[str, Step]:
    """For each attempt: the step that the training came from, if it is still there."""
    before: dict[str, Step] = {}
    newest: dict[int, Step] = {}  # by generation
    claims = {each["generation"]: each for each in run.generations if each["claim_readable"]}
    for step in run.committed:
        found = newest.get(step.generation)
        if found is None and (claim := claims.get(step.generation)) is not None:
            if claim["resumed_from"]:
                found = run.step_of(claim["resumed_from"]["attempt"])
            elif not newest:  # a later process that restored nothing began a line of its own
                found = _fork_point(run, runs, step)
        if found is not None and found.info is not None:
            before[step.attempt] = found
        newest[step.generation] = step
    return before


def _fork_point(run: Run, runs: dict[str, Run], first: Step) -> Step | None:
    """The parent's attempt that `run`, whose first step is given, came from."""
    parent = run.parents[0] if run.parents else None
    if parent is None or parent.run is None:
        return None
    found = [step for step in runs[parent.run].committed if step.step == parent.step]
    if first.step == parent.step:  # df.fork() made it, a copy that keeps the time of its original
        originals = [step for step in found if step.time_micros == first.time_micros]
        return originals[0] if originals else None
    if not run.began_micros:
        return found[0] if len(found) == 1 else None
    # The parent may have gone back, and saved the step again since.
    before = [step for step in found if step.time_micros <= run.began_micros]
    return max(before, key=lambda step: step.time_micros, default=None)
