"""The rows of one study on disk: appended case by case, so that an interrupted one goes on."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from study.case import Plan
from study.row import OK, Row, check

ROWS, ABOUT = "rows.jsonl", "study.json"
FORMAT = 1


class JournalError(Exception):
    """Another study's directory, or one that can't be read; says what to do."""


@dataclass
class Journal:
    """Owns `directory`; one process at a time."""

    directory: Path
    rows: list[Row] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.directory / ROWS

    def finished(self) -> set[str]:
        """The keys of the cases that are whole."""
        counts = Counter(key_of(row) for row in self.rows)
        return {key_of(row) for row in self.rows if counts[key_of(row)] == row["rows"]}

    def append(self, rows: Iterable[Row]) -> None:
        """All rows of one case, durably. OSError: none of them counts."""
        found = [check(row) for row in rows]
        found = [{**row, "rows": len(found)} for row in found]
        text = "".join(json.dumps(row) + "\n" for row in found)
        with self.path.open("a") as file:
            whole = file.tell()
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.truncate(self.path, whole)
                raise
        self.rows += found

    def forget_failures(self) -> int:
        """Cases with a row that is not ok are run again; how many."""
        failed = {key_of(row) for row in self.rows if row["status"] != OK}
        self._keep([row for row in self.rows if key_of(row) not in failed])
        return len(failed)

    def _keep(self, rows: list[Row]) -> None:
        """Rewritten by rename: a crash leaves the old rows or the new ones."""
        part = self.path.with_suffix(".part")
        with part.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path)
        self.rows = rows


def key_of(row: Row) -> str:
    return f"{row['experiment']}/{row['case']}"


def open_journal(directory: Path, plan: Plan, machine: dict[str, Any]) -> Journal:
    """A new study, or the one that is there where it has the same plan."""
    directory.mkdir(parents=True, exist_ok=True)
    about = directory / ABOUT
    if not about.exists():
        described = {"format": FORMAT, **asdict(plan), "machine": machine}
        about.write_text(json.dumps(described, indent=1) + "\n")
    known = read_about(directory)
    wanted = asdict(plan)
    if {name: known.get(name) for name in wanted} != wanted:
        raise JournalError(
            f"{directory} holds a study with quick={known.get('quick')} and "
            f"seed={known.get('seed')}: choose another --out, or the same options"
        )
    journal = Journal(directory, whole_rows(directory))
    journal._keep(journal.rows)
    return journal


def read_about(directory: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((directory / ABOUT).read_text())
    except (OSError, ValueError) as error:
        raise JournalError(f"{directory} holds no study: {ABOUT}: {error}") from None
    if found.get("format") != FORMAT:
        raise JournalError(f"{directory / ABOUT}: format {found.get('format')}, not {FORMAT}")
    return found


def whole_rows(directory: Path) -> list[Row]:
    """Those of cases that were not interrupted, in the order in which they were run."""
    path = directory / ROWS
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [row for row in map(parsed, lines) if row is not None]
    counts = Counter(map(key_of, rows))
    return [row for row in rows if counts[key_of(row)] == row["rows"]]


def parsed(line: str) -> Row | None:
    """None where a crash has torn it."""
    try:
        row: Row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and "rows" in row else None
