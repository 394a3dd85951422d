"""The tables of each experiment, made of its rows."""

from collections.abc import Callable
from dataclasses import replace
from itertools import filterfalse

from lab.measure.row import Row
from lab.networks.asked import ABSENT
from lab.report.summary import Group, Study
from lab.report.table import Cell, Line, Mood, Table, words
from lab.report.tables import faults, files, ranks, speed
from lab.report.tables.common import framework, is_simulated, writer

TABLES: dict[str, Callable[[Study], list[Table]]] = {
    "cost": speed.cost,
    "formats": files.formats,
    "frequency": speed.frequency,
    "scale": ranks.scale,
    "determinism": faults.determinism,
    "crash": faults.crash,
    "corruption": faults.corruption,
    "sdc": faults.sdc,
    "restore": speed.restore,
    "portability": files.portability,
    "tearing": faults.tearing,
}


def tables(study: Study, experiment: str) -> list[Table]:
    """None where nothing of it was measured, and nothing left out."""
    found = TABLES[experiment](replace(study, rows=tuple(filterfalse(is_absent, study.rows))))
    groups = study.groups(experiment)
    return found + not_run(groups, found) + contradicting(groups)


def is_absent(row: Row) -> bool:
    """It stands for what has no line in a table: `not_run` tells it."""
    return str(row.get("case")).startswith(ABSENT)


def not_run(groups: list[Group], found: list[Table]) -> list[Table]:
    """Why something was not measured, where no table says so: it has no place in any."""
    told = "\n".join(
        text for table in found for text in (*table.notes, *map(cells_text, table.lines))
    )
    lines = [
        Line(words(what(group), reason))
        for group in groups for reason in group.reasons if reason not in told
    ]  # fmt: skip
    return [Table("Not run", ("What", "Why"), tuple(lines))] if lines else []


def contradicting(groups: list[Group]) -> list[Table]:
    """The tables show the first repetition of what must be the same in all."""
    lines = [
        Line((*words(what(group), name), Cell(values_of(group, name), Mood.BAD)))
        for group in groups for name in group.differing()
    ]  # fmt: skip
    columns = ("What", "Column", "Says, one repetition after the other")
    return [Table("Repetitions that do not agree", columns, tuple(lines))] if lines else []


def values_of(group: Group, column: str) -> str:
    return ", ".join(str(row.get(column)) for row in group.rows)


def cells_text(line: Line) -> str:
    return "\n".join(cell.text for cell in line.cells)


def what(group: Group) -> str:
    ranks = f"{group['ranks']} ranks" if group["ranks"] else ""
    model = "what the model predicts" if is_simulated(group) else ""
    named = (
        framework(group), group.text("workload"), writer(group), group.text("strategy"), ranks,
        model,
    )  # fmt: skip
    return ", ".join(filter(None, named)) or group.text("case")
