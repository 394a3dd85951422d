"""All that the page can ask for, by names that hold no path of a file."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable
from threading import Event, Thread, get_native_id
from typing import Any

import numpy as np

from deepfreeze.base.verbs import JSON_FORMAT
from deepfreeze.errors import CheckpointError, make_error
from deepfreeze.exploring import analyses
from deepfreeze.exploring.cache import Cache
from deepfreeze.exploring.comparing import compare
from deepfreeze.exploring.flags import flags_of
from deepfreeze.exploring.runs import Run
from deepfreeze.exploring.statistics import RunNumbers
from deepfreeze.exploring.step_numbers import OnBytes
from deepfreeze.exploring.steps import Step
from deepfreeze.exploring.tensor_numbers import BIN_FIRST, BINS, QUANTITIES

_NICE = 10  # of the thread that computes, and of those that read for it
JSON, BINARY = "application/json", "application/octet-stream"


class _StoppedError(Exception):
    """Nobody waits for the step that is computed."""


class Answers:
    """For any number of threads; one more computes the missing numbers."""

    def __init__(self, runs: list[Run], cache: Cache, *, reads: bool = True) -> None:
        self.runs = runs
        self.reads = reads  # otherwise nothing but headers and the cache is looked at
        self._by_id = {run.id: run for run in runs}
        self._cache = cache
        self._numbers: dict[str, RunNumbers] = {}
        self._stop = Event()
        self._thread: Thread | None = None
        self._wanted = ""  # the run that was asked for last is computed first

    def numbers(self, run_id: str) -> RunNumbers:
        """The numbers of a run; those in the cache are there from the first call on."""
        run = self._run(run_id)
        if run_id not in self._numbers:
            made = RunNumbers(run, self._by_id, self._cache)
            made.load()
            self._numbers.setdefault(run_id, made)
        return self._numbers[run_id]

    def of(self, words: list[str]) -> tuple[str, bytes]:
        """The answer to an address, by its components. CheckpointError (not_found)."""
        name, rest = words[0], words[1:]
        if name == "matrix" and len(rest) == 2:
            return BINARY, self._matrix(*rest)
        makers: dict[str, tuple[int, Callable[..., dict[str, Any]]]] = {
            "model": (0, self.model), "progress": (0, self.progress), "tensors": (1, self.tensors),
            "tensor": (2, self.tensor), "flags": (1, self.flags), "compare": (4, self.compare),
            "analyses": (1, self.analyses), "analysis": (2, self.analysis),
        }  # fmt: skip
        count, make = makers.get(name, (-1, self.model))
        if count != len(rest):
            raise make_error("not_found", "no such address")
        return JSON, dumped(make(*rest))

    def model(self) -> dict[str, Any]:
        """Runs and steps; what `--json` prints, without the numbers."""
        return {
            "format": JSON_FORMAT,
            "command": "explore",
            "quantities": list(QUANTITIES),
            "bins": {"first": BIN_FIRST, "count": BINS},
            "runs": [run.document() for run in self.runs],
        }

    def progress(self) -> dict[str, Any]:
        """How much of each run is known."""
        thread = self._thread
        # Asked before the revisions: if nothing computes, they are the last.
        is_computing = thread is not None and thread.is_alive()
        runs = {}
        for run in self.runs:
            numbers = self._numbers.get(run.id)
            if numbers is not None:
                total = len(numbers.columns)
                done = total - len(numbers.missing)
                runs[run.id] = {"done": done, "total": total, "revision": numbers.revision}
        return {"computing": is_computing, "runs": runs}

    def tensors(self, run_id: str) -> dict[str, Any]:
        """The tensors of a run, and the steps that its matrices have as columns."""
        self._wanted = run_id
        numbers = self.numbers(run_id)
        forms, kinds = numbers.tensors()
        return {
            "revision": numbers.revision,
            "columns": [step.attempt for step in numbers.columns],
            "fates": {
                step.attempt: {"state": step.state, "fault": step.fault, "note": step.note}
                for step in numbers.columns
                if step.fault or step.note
            },
            "tensors": [
                {"key": form.key, "dtype": form.logical or form.dtype, "shape": form.shape,
                 "elements": form.elements, "bytes": form.bytes, "kind": kind}
                for form, kind in zip(forms, kinds, strict=True)
            ],
        }  # fmt: skip

    def _matrix(self, run_id: str, quantity: str) -> bytes:
        """float32, little-endian, a row for each tensor; NaN is not known."""
        if quantity not in QUANTITIES:
            raise make_error("not_found", "no such quantity")
        return np.asarray(self.numbers(run_id).matrix(quantity), "<f4").tobytes()

    def tensor(self, run_id: str, place: str) -> dict[str, Any]:
        """The series of one tensor, and its histogram at each step."""
        numbers = self.numbers(run_id)
        forms, _ = numbers.tensors()
        if not place.isdecimal() or int(place) >= len(forms):
            raise make_error("not_found", "no such tensor")
        series = numbers.exact_series(int(place))
        return {
            "key": forms[int(place)].key,
            "series": {name: row.tolist() for name, row in zip(QUANTITIES, series, strict=True)},
            "histograms": numbers.histograms(int(place)).tolist(),
        }

    def flags(self, run_id: str) -> dict[str, Any]:
        """The findings in a run that deserve a look."""
        self._wanted = run_id
        numbers = self.numbers(run_id)
        return {"flags": flags_of(numbers), "missing": len(numbers.missing)}

    def analyses(self, run_id: str) -> dict[str, Any]:
        """The results that programs have left beside a run, as they are now."""
        return {"analyses": analyses.listed(self._run(run_id).path)}

    def analysis(self, run_id: str, name: str) -> dict[str, Any]:
        """One of them. CheckpointError (not_found, corrupt)."""
        return analyses.named(self._run(run_id).path, name)

    def compare(self, run: str, attempt: str, other_run: str, other: str) -> dict[str, Any]:
        """The second step as it differs from the first."""
        one, two = self._step(run, attempt), self._step(other_run, other)
        return compare(one, two, self._cache, reads=self.reads)

    def _run(self, run_id: str) -> Run:
        run = self._by_id.get(run_id)
        if run is None:
            raise make_error("not_found", "no such run here")
        return run

    def _step(self, run_id: str, attempt: str) -> tuple[Run, Step]:
        run = self._by_id.get(run_id)
        step = run.step_of(attempt) if run is not None else None
        if run is None or step is None:
            raise make_error("not_found", "no such step here")
        return run, step

    def missing_bytes(self) -> int:
        """The size of the steps that compute_all() would read."""
        return sum(self.numbers(run.id).missing_bytes for run in self.runs)

    def read_ranges(self) -> None:
        """Takes the numbers in the headers of all steps, and reads no data."""
        for run in self.runs:
            if not self._stop.is_set():
                self.numbers(run.id).read_ranges()

    def compute_all(self, on_bytes: OnBytes) -> None:
        """Computes the missing numbers, the run that was asked for last first; ends at stop()."""

        def told(count: int) -> None:
            if self._stop.is_set():
                raise _StoppedError
            on_bytes(count)

        with contextlib.suppress(_StoppedError):
            while not self._stop.is_set():
                numbers = self._next()
                if numbers is None:
                    return
                numbers.read_ranges()
                numbers.compute(numbers.missing[0], told)

    def _next(self) -> RunNumbers | None:
        order = sorted(self.runs, key=lambda run: run.id != self._wanted)
        return next((numbers for run in order if (numbers := self.numbers(run.id)).missing), None)

    def begin(self) -> None:
        """Starts the thread that computes, from headers alone unless `reads` is set."""
        work = self._compute if self.reads else self.read_ranges
        self._thread = Thread(target=work, name="df-explore", daemon=True)
        self._thread.start()

    def _compute(self) -> None:
        with contextlib.suppress(OSError):  # a training on this machine comes first
            os.setpriority(os.PRIO_PROCESS, get_native_id(), _NICE)
        self.compute_all(lambda _: None)

    def stop(self) -> None:
        """Ends the thread after the pieces that it reads; the step that it is at is given up."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


def plain(value: Any) -> Any:
    """The value as JSON has it: None for NaN, "inf" and "-inf" for infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def dumped(value: Any) -> bytes:
    """UTF-8, with lone surrogates replaced."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(errors="replace")


def error_document(error: CheckpointError) -> bytes:
    """An error as `--json` documents have it."""
    return dumped({"error": {"code": error.code, "message": str(error)}})
