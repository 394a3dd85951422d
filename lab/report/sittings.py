"""The runs that a study was measured in: when, on which machine, by which code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.measure.journal import ALIKE, DATE, RESUMED, STAMPS
from lab.report.summary import Study

COMMIT = "commit"
Sitting = Mapping[str, Any]


def sittings(study: Study) -> list[Sitting]:
    """That in which it began, and those in which it was gone on with."""
    return [study.about.get("machine", {}), *study.about.get(RESUMED, [])]


def values(study: Study, name: str) -> list[Any]:
    """That its runs have: one where they have it alike."""
    return list(dict.fromkeys(one.get(name) for one in sittings(study)))


def differing(study: Study) -> list[str]:
    return [name for name in ALIKE if len(values(study, name)) > 1]


def on_one_machine(study: Study) -> bool:
    return set(differing(study)) <= {COMMIT}


def later(study: Study) -> str:
    """Each run after the first, and what of it rows tell; empty where there was none."""
    _, *again = sittings(study)
    if not again:
        return ""
    told = "; ".join(described(one) + rows_of(study, one) for one in again)
    what = "What had no row by then was run, also where rows had been taken out."
    return f" Continued at {told}. {what}{untold(study)}"


def described(one: Sitting) -> str:
    known = [str(one[name]) for name in ("cpu", "kernel") if one.get(name)]
    return f"{one.get(DATE)} ({', '.join([f'commit {one.get(COMMIT)}', *known])})"


def rows_of(study: Study, one: Sitting) -> str:
    """Two runs may have the same commit and processor: so nothing more is said of them."""
    rows = [row for row in study.rows if all(row.get(name) == one.get(name) for name in STAMPS)]
    names = dict.fromkeys(str(row["experiment"]) for row in rows if row.get(COMMIT))
    return f": rows of {', '.join(names)} are by this commit and processor" if names else ""


def untold(study: Study) -> str:
    count = sum(not row.get(COMMIT) for row in study.rows)
    if not count:
        return ""
    whole = len(study.rows)
    return f" {count:,} of {whole:,} rows do not tell in which of these runs they were made."
