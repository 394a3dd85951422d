"""Trainings that were killed and resumed."""

from __future__ import annotations

from lab.report.summary import Group, Study
from lab.report.table import Cell, Line, Mood, Table, words
from lab.report.tables.common import absent, failures, framework, is_ours, split, writer

SAME = "BIT_IDENTICAL"
VERDICTS = {
    SAME: ("bit for bit the same", Mood.GOOD),
    "ULP_CLOSE": ("apart by rounding", Mood.WARN),
    "DIVERGED": ("another training", Mood.BAD),
    "FAILED": ("could not resume", Mood.BAD),
    "NONDETERMINISTIC_BASELINE": ("two undisturbed runs differ", Mood.WARN),
}


def determinism(study: Study) -> list[Table]:
    found = split(study.groups("determinism"), "framework")
    return [of_framework(groups) for groups in found.values()]


def of_framework(groups: list[Group]) -> Table:
    columns = ("Writer", "Of the state it saved", "What happened", "The resumed training is",
               "First difference", "Remark")  # fmt: skip
    return Table(framework(groups[0]), columns, tuple(map(line, groups)), failures(groups))


def line(group: Group) -> Line:
    happened = group.text("fault") or "undisturbed, twice"
    saved = group.text("saved") or "nothing"
    names = words(writer(group), saved, happened)
    if not group.ok:
        return Line((*names, absent(group)), is_ours(group))
    verdict, mood = VERDICTS.get(group.text("verdict"), (group.text("verdict"), Mood.PLAIN))
    return Line((*names, Cell(verdict, mood), *words(first(group), group.text("reason"))),
                is_ours(group))  # fmt: skip


def first(group: Group) -> str:
    if group["first_step"] is None:
        return ""
    return f"step {group['first_step']}, {group.text('first_entry')}"
