"""Figures that documents quote by hand agree with lab/results/figures.json."""

import re
from functools import cache

import pytest

from lab.report.results import (
    PAGE,
    ROWS,
    STUDY,
    Row,
    condensed,
    figures,
    grouped,
    stored,
    unwrapped,
    wrapped,
)
from lab.writers.menu import ROOT

FIGURE = re.compile(r"([-+]?\b\d[\d.,]*) (ms|s|%|MiB|times|of \d+)(?=[\s,.;:)])")


@cache
def known() -> dict[str, list[Row]]:
    return stored()


def beyond_tables() -> list[Row]:
    return [row for row in known()[STUDY] if row["where"].startswith(ROWS)]


def text(path: str) -> str:
    return (ROOT / path).read_text()


def lines_of_tables(path: str) -> list[list[str]]:
    lines = [line for line in text(path).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [line for line in cells if line[0] != "the abstract says"]


def outcomes() -> list[str]:
    return [line[2] for line in lines_of_tables("docs/papers.md")]


def test_every_claim_of_the_abstracts_has_its_outcome() -> None:
    assert len(outcomes()) == 15
    assert all(len(line) >= 3 for line in lines_of_tables("docs/papers.md"))
    assert all(outcomes())


@pytest.mark.parametrize("outcome", outcomes(), ids=lambda one: one[:40])
def test_no_figure_is_told_that_rows_do_not_give(outcome: str) -> None:
    rows = [row for each in known().values() for row in each]
    measured = {(row["value"], row["unit"]) for row in rows}
    ratios = {(row["value"], "times") for row in rows if row["unit"] in ("", "times")}
    for number, unit in FIGURE.findall(outcome):
        assert (float(number.replace(",", "")), unit) in measured | ratios, f"{number} {unit}"


def test_a_long_line_is_wrapped_and_its_figures_are_found_all_the_same() -> None:
    finding = "- " + ", ".join(["a save holds the training up for 12.5 ms"] * 9) + "."
    long = f"## study\n\n### Findings\n\n{finding}\n"
    code = "```\n  x\n  y\n```\n| " + "a" * 130 + " |\n"
    text = wrapped(long + code)
    assert max(map(len, text.partition("```")[0].splitlines())) <= 120
    assert text.endswith(code)
    assert unwrapped(text) == long + code
    assert len(figures(text)["study"]) == 9


def test_the_figures_are_those_of_the_page() -> None:
    found = figures(PAGE.read_text())
    found[STUDY] += beyond_tables()
    assert grouped(found) == grouped(known())
    assert all(rows for key, rows in known().items() if key != "growth")


def test_the_page_is_no_longer_than_it_is_read() -> None:
    assert condensed(PAGE.read_text()) == PAGE.read_text()
    assert len(PAGE.read_text().split()) < 20_000


def test_the_errors_of_the_model_are_those_of_the_study() -> None:
    told = text("lab/simulation/README.md")
    errors: dict[str, list[str]] = {}
    for row in beyond_tables():
        if row["what"].startswith("error of the model"):
            errors.setdefault(row["where"].partition(" / ")[2], []).append(f"{row['value']:+d} %")
    assert len(errors) == 4
    for strategy, each in errors.items():
        assert f"| `{strategy}` | {' | '.join(each)} |" in told
    assert "Nothing was compared beyond" not in told


def test_how_long_it_took_is_what_rows_say() -> None:
    (minutes,) = (row["value"] for row in beyond_tables() if row["what"] == "its cases")
    assert f"its cases took {minutes:.1f} minutes" in text("lab/STUDY.md")


@pytest.mark.parametrize(
    "path", ["README.md", "lab/__init__.py", "lab/command.py", "lab/results/summary.md"]
)
def test_nobody_says_that_every_writer_there_is_was_measured(path: str) -> None:
    assert not re.search(r"every (?:checkpoint )?writer", text(path), re.IGNORECASE)
