"""Where rows become figures: repetitions of one measurement together, never of two."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from lab.measure.journal import read_about, whole_rows
from lab.measure.row import COLUMNS, OK, Kind, Row, Value, identity


@dataclass(frozen=True)
class Figure:
    """Of all repetitions."""

    median: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Group:
    """The repetitions of one measurement, in the order in which they were made."""

    rows: tuple[Row, ...]

    def __getitem__(self, column: str) -> Value:
        """Of a column that all repetitions have alike: what the first says."""
        return self.rows[0].get(column)

    @property
    def ok(self) -> bool:
        return all(row["status"] == OK for row in self.rows)

    @property
    def reasons(self) -> list[str]:
        """Why rows are not ok; each once."""
        found = [str(row["reason"]) for row in self.rows if row["status"] != OK]
        return list(dict.fromkeys(found))

    def text(self, column: str) -> str:
        value = self[column]
        return "" if value is None else str(value)

    def figure(self, column: str) -> Figure | None:
        """None where no repetition that went well has it."""
        rows = [row for row in self.rows if row["status"] == OK]
        found = [float(v) for row in rows if isinstance(v := row.get(column), (int, float))]
        return Figure(median(found), min(found), max(found), len(found)) if found else None

    def differing(self) -> list[str]:
        """Exact columns that the repetitions do not have alike."""
        exact = [name for name, column in COLUMNS.items() if column.kind is Kind.EXACT]
        return [name for name in exact if len({row.get(name) for row in self.rows}) > 1]

    def detail(self) -> dict[str, Any]:
        """What is no column, of the first row; empty where there is none."""
        try:
            found = json.loads(str(self.rows[0].get("detail") or "{}"))
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Study:
    """All that one directory holds."""

    directory: Path
    about: Mapping[str, Any]
    rows: tuple[Row, ...]

    def groups(self, experiment: str) -> list[Group]:
        return grouped(row for row in self.rows if row["experiment"] == experiment)

    @property
    def experiments(self) -> list[str]:
        return list(dict.fromkeys(str(row["experiment"]) for row in self.rows))


def grouped(rows: Iterable[Row]) -> list[Group]:
    """In the order in which each was first measured."""
    found: dict[tuple[Value, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(identity(row), []).append(row)
    return [Group(tuple(one)) for one in found.values()]


def read(directory: Path) -> Study:
    """JournalError where the directory holds no study."""
    return Study(directory, read_about(directory), tuple(whole_rows(directory)))
