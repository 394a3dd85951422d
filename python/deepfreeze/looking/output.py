"""Tables and documents, as the native verbs print them (src/cli/output.h)."""

from __future__ import annotations

import time
from collections.abc import Sequence

from deepfreeze.base.names import shortened
from deepfreeze.base.verbs import printable


def readable(text: str) -> str:
    """The text for people: printable, and long words without their middle."""
    return shortened(printable(text))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table. A title that begins with ">" heads a column of numbers."""
    right = [title.startswith(">") for title in titles]
    lines = [[title.lstrip(">") for title in titles]]
    lines += [[readable(cell) for cell in row] for row in rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(titles))]
    for line in lines:
        cells = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, right, strict=True)
        ]
        print("  ".join(cells).rstrip())


def utc_time(micros: int) -> str:
    """ "2026-11-21 08:52:10 UTC"."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(micros / 1e6))


def human_age(micros: int) -> str:
    """ "3 min ago"."""
    seconds = time.time() - micros / 1e6
    if seconds < 0:
        return "in the future"
    for limit, unit, size in ((90, "s", 1), (5400, "min", 60), (129_600, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds / 86400:.0f} days ago"
