"""What is written by hand about the committed study is what its rows say."""

from __future__ import annotations

import re
from functools import cache

import pytest

from bench.storage.menu import ROOT
from study.report.findings.speed import signed_errors
from study.report.markdown import summary
from study.report.summary import Study, read
from study.report.tables.common import split

FIGURE = re.compile(r"[-+]?\b\d[\d.,]* (?:ms|s|%|MiB|times|of \d+)(?=[\s,.;:)])")


@cache
def committed() -> Study:
    return read(ROOT / "docs/study")


def text(path: str) -> str:
    return (ROOT / path).read_text()


def lines_of_tables(path: str) -> list[list[str]]:
    lines = [line for line in text(path).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [line for line in cells if line[0] != "the abstract says"]


def outcomes() -> list[str]:
    return [line[2] for line in lines_of_tables("docs/papers.md")]


def imbalances() -> set[str]:
    found = (row.get("imbalance") for row in committed().rows)
    return {f"{one:.{digits}f}".removesuffix(".00") for one in found if isinstance(one, float)
            for digits in (2, 4)}  # fmt: skip


def test_every_claim_of_the_abstracts_has_its_outcome() -> None:
    assert len(outcomes()) == 14
    assert all(len(line) >= 3 for line in lines_of_tables("docs/papers.md"))
    assert all(outcomes())


@pytest.mark.parametrize("outcome", outcomes(), ids=lambda one: one[:40])
def test_no_figure_is_told_that_rows_do_not_give(outcome: str) -> None:
    known = summary(committed()) + text("bench/results/ranks.md")
    for figure in FIGURE.findall(outcome):
        number = figure.removesuffix(" times")
        assert number in known or number in imbalances(), figure


def test_the_summary_is_that_of_the_rows() -> None:
    assert text("docs/study/summary.md") == summary(committed())


def test_the_errors_of_the_model_are_those_of_the_study() -> None:
    told = text("study/simulation/README.md")
    groups = [one for one in committed().groups("scale") if one["quantity"] and one["ranks"]]
    for (strategy,), found in split(groups, "strategy").items():
        half, low, high = re.findall(r"[-+]\d+ %", signed_errors(found))
        assert f"| `{strategy}` | {half} | {low} | {high} |" in told
    assert "Nothing was compared beyond" not in told


def test_how_long_it_took_is_what_rows_say() -> None:
    spent = {(row["experiment"], row["case"]): float(str(row["wall_seconds"]))
             for row in committed().rows}  # fmt: skip
    assert f"its cases took {sum(spent.values()) / 60:.1f} minutes" in text("study/README.md")


@pytest.mark.parametrize(
    "path", ["README.md", "study/__init__.py", "study/command.py", "docs/study/report.html"]
)
def test_nobody_says_that_every_writer_there_is_was_measured(path: str) -> None:
    assert not re.search(r"every (?:checkpoint )?writer", text(path), re.IGNORECASE)
