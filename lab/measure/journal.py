"""The rows of one study on disk: appended case by case, so that an interrupted one goes on."""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.measure.case import Case, Plan
from lab.measure.row import OK, Row, check

ROWS, ABOUT, LOCK = "rows.jsonl", "study.json", "study.lock"
RESUMED, DATE = "resumed", "date"
ALIKE = ("commit", "cpu", "kernel")  # of the machine: should not change within a study
STAMPS = ("commit", "cpu")  # of the machine: in every row
FORMAT = 1


class JournalError(Exception):
    """Another study's directory, or one that can't be read; says what to do."""


@dataclass
class Journal:
    """Owns `directory`; one process at a time."""

    directory: Path
    rows: list[Row] = field(default_factory=list)
    lock: int | None = None  # held until close(); None: only read
    resumes: bool = False  # it was there before
    stamp: Row = field(default_factory=dict)  # what every new row says of the run that it is of

    @property
    def path(self) -> Path:
        return self.directory / ROWS

    def close(self) -> None:
        """Lets another write; its rows can still be read."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def finished(self) -> set[str]:
        """The keys of the cases that are whole."""
        counts = Counter(key_of(row) for row in self.rows)
        return {key_of(row) for row in self.rows if counts[key_of(row)] == row["rows"]}

    def append(self, rows: Iterable[Row]) -> None:
        """All rows of one case, durably. OSError: none of them counts."""
        found = [check(row) for row in rows]
        found = [{**row, **self.stamp, "rows": len(found)} for row in found]
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

    def forget_outdated(self, cases: Sequence[Case]) -> None:
        """Derived cases are made anew where measurements that they are of came later, or will."""
        growing = self._growing(cases)
        outdated = {
            case.key for case in cases
            if case.derived and (case.experiment in growing or self._followed(case))
        }  # fmt: skip
        self._keep([row for row in self.rows if key_of(row) not in outdated])

    def _growing(self, cases: Sequence[Case]) -> set[str]:
        """Experiments of which something is still to be measured."""
        finished = self.finished()
        measuring = (case for case in cases if not case.about.get("simulated"))
        return {case.experiment for case in measuring if case.key not in finished}

    def _followed(self, derived: Case) -> bool:
        """Whether something was measured after it."""
        keys = [
            key_of(row) for row in self.rows
            if row["experiment"] == derived.experiment
            and (key_of(row) == derived.key or not row.get("simulated"))
        ]  # fmt: skip
        return keys[-1:] != [derived.key]

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


def read_journal(directory: Path) -> Journal:
    """To report what is there, also while a study writes it."""
    read_about(directory)
    return Journal(directory, whole_rows(directory))


def open_journal(directory: Path, plan: Plan, machine: dict[str, Any]) -> Journal:
    """A new study, or the one that is there where it has the same plan. One process at a time."""
    directory.mkdir(parents=True, exist_ok=True)
    stamp = {name: machine.get(name) for name in STAMPS}
    journal = Journal(directory, lock=locked(directory), stamp=stamp)
    try:
        journal.resumes = (directory / ABOUT).exists()
        begin(directory, plan, machine)
        journal._keep(whole_rows(directory))
    except BaseException:
        journal.close()
        raise
    return journal


def begin(directory: Path, plan: Plan, machine: dict[str, Any]) -> None:
    if not (directory / ABOUT).exists():
        write_about(directory, {"format": FORMAT, **asdict(plan), "machine": machine})
    known = read_about(directory)
    wanted = asdict(plan)
    if {name: known.get(name) for name in wanted} != wanted:
        raise JournalError(
            f"{directory} holds a study with quick={known.get('quick')} and "
            f"seed={known.get('seed')}: choose another --out, or the same options"
        )


def locked(directory: Path) -> int:
    """Until it is closed, or the process ends. JournalError where another has it."""
    # A file of its own: NFS locks only what is open for writing, and the others are renamed over.
    descriptor = os.open(directory / LOCK, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise
        raise JournalError(f"{directory}: another study is writing there") from None
    return descriptor


def note_resumption(directory: Path, machine: dict[str, Any]) -> list[str]:
    """Keeps on what else the rest is measured; what of it is not as when the study began."""
    known = read_about(directory)
    again = {name: machine.get(name) for name in (DATE, *ALIKE)}
    resumed = [*known.get(RESUMED, []), again]
    write_about(directory, {**known, RESUMED: resumed})
    return [name for name in ALIKE if known["machine"].get(name) != machine.get(name)]


def write_about(directory: Path, described: dict[str, Any]) -> None:
    """By rename: a crash leaves the old or the new."""
    part = directory / f"{ABOUT}.part"
    with part.open("w") as file:
        file.write(json.dumps(described, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, directory / ABOUT)


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
