"""Tables of text, for a terminal and as Markdown; spreads and machines in words."""

from collections.abc import Iterable, Sequence
from typing import Any

from lab.measure.loop_summary import Spread

FAULT_CHARACTERS_MAX = 300  # of an error's text in a table; JSON has all of it


def line_of(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def grid(headings: Sequence[str], lines: Iterable[Iterable[str]]) -> list[str]:
    """Markdown."""
    return [line_of(headings), "|" + "---|" * len(headings), *map(line_of, lines)]


def aligned(
    headings: Sequence[str], lines: Iterable[Sequence[str]], *, ruled: bool = False
) -> list[str]:
    """For a terminal."""
    table = [headings, *lines]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    if ruled:
        table.insert(1, ["-" * width for width in widths])
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]


def short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= FAULT_CHARACTERS_MAX else line[:FAULT_CHARACTERS_MAX] + " …"


def machine_lines(machine: dict[str, Any]) -> list[str]:
    return [f"- {name.replace('_', ' ')}: {value}" for name, value in machine.items()]


def with_spread(value: Spread | None, scale: float = 1, digits: int = 2) -> str:
    if value is None:
        return "-"
    numbers = (value.median, value.low, value.high)
    middle, low, high = (f"{one / scale:,.{digits}f}" for one in numbers)
    return middle if value.count == 1 else f"{middle} [{low}, {high}]"
