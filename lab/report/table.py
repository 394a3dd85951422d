"""What the page and the Markdown summary both show: a table of strings, each cell with its kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from lab.report.summary import Figure

SECOND, MILLISECOND, MICROSECOND = 1.0, 1e-3, 1e-6
ONE_RUN = ", one run"  # in place of a spread
BYTE_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


class Mood(Enum):
    """What a reader should see before reading the word."""

    PLAIN = "plain"
    GOOD = "good"  # found, kept, the same
    BAD = "bad"  # lost, silent, another state than was saved
    WARN = "warn"  # an error, or less than was asked
    ABSENT = "absent"  # not measured: the note below says why


@dataclass(frozen=True)
class Cell:
    text: str
    mood: Mood = Mood.PLAIN
    value: float | None = None  # what a bar or a sort needs


@dataclass(frozen=True)
class Line:
    """One row; `ours` where it is DeepFreeze's."""

    cells: tuple[Cell, ...]
    ours: bool = False


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]  # the first is the row's name
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()  # below it: units, and why a cell is empty
    simulated: bool = False


def words(*texts: str) -> tuple[Cell, ...]:
    return tuple(Cell(text) for text in texts)


def three(value: float) -> str:
    """Digits that count, never fewer than those before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def seconds(value: float) -> str:
    """Three digits, in a unit that needs no zeros before them."""
    if value >= SECOND:
        return f"{three(value)} s"
    if value >= MILLISECOND:
        return f"{value / MILLISECOND:.3g} ms"
    return f"{value / MICROSECOND:.3g} us"


def size(count: float) -> str:
    for unit, name in BYTE_UNITS:
        if count >= unit:
            return f"{three(count / unit)} {name}"
    return f"{count:.0f} B"


def duration(figure: Figure | None) -> Cell:
    """The median, and from least to greatest where there are several."""
    if figure is None:
        return Cell("", Mood.ABSENT)
    several = f" [{seconds(figure.low)}, {seconds(figure.high)}]"
    text = seconds(figure.median) + (several if figure.count > 1 else ONE_RUN)
    return Cell(text, value=figure.median)


def predicted(figure: Figure | None) -> Cell:
    """Of the model, which has no spread."""
    if figure is None:
        return Cell("", Mood.ABSENT)
    return Cell(seconds(figure.median), value=figure.median)


def amount(figure: Figure | None) -> Cell:
    """The same, of bytes; many are exact, and have no spread."""
    if figure is None:
        return Cell("", Mood.ABSENT)
    low, high = size(figure.low), size(figure.high)
    spread = f" [{low}, {high}]" if low != high else ""
    return Cell(size(figure.median) + spread, value=figure.median)


def notes_of(reasons: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """`name: reason` each; those with one reason together."""
    found: dict[str, list[str]] = {}
    for name, reason in reasons:
        names = found.setdefault(reason, [])
        if name not in names:
            names.append(name)
    return tuple(f"{', '.join(names)}: {reason}" for reason, names in found.items())
