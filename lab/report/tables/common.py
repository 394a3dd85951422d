"""What tables of several experiments do alike."""

from collections.abc import Callable, Iterable, Sequence

from lab.measure.row import LEFT_OUT, NO_SPACE, NOT_INSTALLED, TIMED_OUT
from lab.report.summary import Group
from lab.report.table import Cell, Line, Mood, Table, notes_of, words

FRAMEWORKS = {"pytorch": "PyTorch", "tensorflow": "TensorFlow", "chainer": "Chainer", "jax": "JAX"}
OURS = "df"  # how the names of DeepFreeze's own writers begin
DEEPFREEZE = "deepfreeze"  # the strategy
ABSENT = {
    LEFT_OUT: "left out", NOT_INSTALLED: "not installed", NO_SPACE: "no space",
    TIMED_OUT: "timed out",
}  # fmt: skip


def writer(group: Group) -> str:
    return group.text("title") or group.text("writer")


def framework(group: Group) -> str:
    name = group.text("framework")
    return FRAMEWORKS.get(name, name)


def is_ours(group: Group) -> bool:
    return group.text("writer").startswith(OURS) or group["strategy"] == DEEPFREEZE


def is_simulated(group: Group) -> bool:
    return bool(group["simulated"])


def split(groups: Iterable[Group], *columns: str) -> dict[tuple[str, ...], list[Group]]:
    """By what they say in these columns, in the order in which that first comes."""
    found: dict[tuple[str, ...], list[Group]] = {}
    for group in groups:
        found.setdefault(tuple(map(group.text, columns)), []).append(group)
    return found


def absent(group: Group) -> Cell:
    """In place of a figure that there is not; the note below says why."""
    return Cell(ABSENT.get(group.text("status"), "failed"), Mood.ABSENT)


def failures(groups: Iterable[Group], name: Callable[[Group], str] = writer) -> tuple[str, ...]:
    return notes_of([(name(group), reason) for group in groups for reason in group.reasons])


def matrix(
    title: str,
    groups: Sequence[Group],
    across: Callable[[Group], str],
    cell: Callable[[Group], Cell],
) -> Table:
    """A line for each writer, a column for each value of `across`."""
    columns = list(dict.fromkeys(across(group) for group in groups if across(group)))
    lines = tuple(
        matrix_line(found, columns, across, cell)
        for found in split(groups, "framework", "title", "writer").values()
    )
    return Table(title, ("Writer", "Framework", *columns), lines, failures(groups))


def matrix_line(
    found: Sequence[Group],
    columns: Sequence[str],
    across: Callable[[Group], str],
    cell: Callable[[Group], Cell],
) -> Line:
    first, by_column = found[0], {across(group): group for group in found}
    whole = by_column.get("")  # of all columns: why there is none of it
    cells = [
        shown(by_column.get(column, whole), cell) for column in columns
    ]  # fmt: skip
    return Line((*words(writer(first), framework(first)), *cells), is_ours(first))


def shown(group: Group | None, cell: Callable[[Group], Cell]) -> Cell:
    if group is None:
        return Cell("", Mood.ABSENT)
    return cell(group) if group.ok else absent(group)
