"""Runs the cases of a study one after the other; whatever happens to one is a row."""

import errno
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.measure import versions
from lab.measure.case import Case, LeftOutError, Place, Plan, ToolError
from lab.measure.journal import Journal
from lab.measure.program import Environments
from lab.measure.progress import Progress
from lab.measure.row import FAILED, LEFT_OUT, NO_SPACE, NOT_INSTALLED, OK, TIMED_OUT, Row

REASON_CHARACTERS_MAX = 300
OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT)


def run_all(
    cases: list[Case], journal: Journal, environments: Environments, scratch: Path, plan: Plan
) -> None:
    """Those that the journal has not got yet, in order. OSError: a row can't be kept."""
    finished = journal.finished()
    todo = [case for case in cases if case.key not in finished]
    progress = Progress(todo)
    for case in todo:
        progress.begins(case)
        journal.append(rows_of(case, environments, scratch, plan, journal.rows))
        progress.ended(case)
    progress.close()


def rows_of(
    case: Case, environments: Environments, scratch: Path, plan: Plan, measured: Sequence[Row] = ()
) -> list[Row]:
    """At least one row, whatever happens."""
    began = time.perf_counter()
    rows = list(attempt(case, environments, scratch, plan, measured))
    spent = round(time.perf_counter() - began, 3)
    shared: Row = {"experiment": case.experiment, "case": case.name, "seed": plan.seed}
    shared["wall_seconds"] = spent
    whole: list[Row] = [{**shared, **case.about, **row} for row in rows]
    return [{**versions.told(row, case.environment), **row} for row in whole]


def attempt(
    case: Case, environments: Environments, scratch: Path, plan: Plan, measured: Sequence[Row]
) -> Iterator[Row]:
    missing = environments.reasons.get(case.environment)
    if missing:
        yield failure(NOT_INSTALLED, missing)
        return
    directory = Path(tempfile.mkdtemp(prefix="case-", dir=scratch))
    given = 0
    try:
        for row in case.work(Place(directory, plan, measured)):
            given += 1
            yield {"status": OK, **row}
        if given == 0:
            yield failure(FAILED, "the experiment gave no row")
    except Exception as error:  # becomes a row: the study goes on
        yield failure(status_of(error), said(error))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def status_of(error: Exception) -> str:
    if isinstance(error, LeftOutError):
        return LEFT_OUT
    if isinstance(error, TimeoutError):
        return TIMED_OUT
    if isinstance(error, OSError) and error.errno in OUT_OF_SPACE:
        return NO_SPACE
    if isinstance(error, ModuleNotFoundError):
        return NOT_INSTALLED
    if isinstance(error, ToolError):
        return status_of_text(str(error))
    return FAILED


def status_of_text(text: str) -> str:
    """What a program says of itself: it has no other way to tell."""
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return NO_SPACE
    if text.startswith("ModuleNotFoundError"):
        return NOT_INSTALLED
    if "took more than" in text:  # lab.measure.alone
        return TIMED_OUT
    return FAILED


def failure(status: str, reason: str) -> Row:
    return {"status": status, "reason": reason[:REASON_CHARACTERS_MAX]}


def said(error: Exception) -> str:
    if isinstance(error, (LeftOutError, ToolError, TimeoutError)):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error}"
