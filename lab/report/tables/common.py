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


def whose(group: Group) -> Sequence[str]:
    return writer(group), framework(group)


WHOSE = ("Writer", "Framework")  # the columns of whose()


def listing(
    title: str,
    columns: Sequence[str],
    groups: Sequence[Group],
    cells: Callable[[Group], Sequence[Cell]],
    *notes: str,
    names: Callable[[Group], Sequence[str]] = whose,
    failed: Callable[[Group], str] = writer,
) -> Table:
    """A line for each: its names, then its cells, or why it has none."""
    lines = tuple(
        Line((*words(*names(group)), *(cells(group) if group.ok else [absent(group)])),
             is_ours(group))
        for group in groups
    )  # fmt: skip
    return Table(title, tuple(columns), lines, (*notes, *failures(groups, failed)))


def matrix(
    title: str,
    groups: Sequence[Group],
    across: Callable[[Group], str],
    cell: Callable[[Group], Cell],
    *notes: str,
) -> Table:
    """A line for each writer, a column for each value of `across`."""
    columns = list(dict.fromkeys(across(group) for group in groups if across(group)))
    lines = []
    for found in split(groups, "framework", "title", "writer").values():
        by_column = {across(group): group for group in found}
        whole = by_column.get("")  # of all columns: why there is none of it
        cells = [shown(by_column.get(column, whole), cell) for column in columns]
        lines.append(Line((*words(*whose(found[0])), *cells), is_ours(found[0])))
    return Table(title, (*WHOSE, *columns), tuple(lines), (*notes, *failures(groups)))


def shown(group: Group | None, cell: Callable[[Group], Cell]) -> Cell:
    if group is None:
        return Cell("", Mood.ABSENT)
    return cell(group) if group.ok else absent(group)
