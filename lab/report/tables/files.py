"""What the files are, and who else can read them."""

from lab.report.summary import Figure, Group, Study
from lab.report.table import Cell, Mood, Table, amount, words
from lab.report.tables.common import WHOSE, listing, split, whose, writer
from lab.report.tables.speed import title


def formats(study: Study) -> list[Table]:
    found = split(study.groups("formats"), "workload")
    return [formats_table(workload, groups) for (workload,), groups in found.items()]


def formats_table(workload: str, groups: list[Group]) -> Table:
    columns = (*WHOSE, "What the files are", "Files", "Size", "Over the state",
               "Same bytes again")  # fmt: skip
    return listing(title(workload, groups), columns, groups, of_format)


def of_format(group: Group) -> tuple[Cell, ...]:
    counts = words(group.text("container"), group.text("files") or "varies")
    return *counts, amount(bytes_of(group)), over(group), again(group)


def again(group: Group) -> Cell:
    """Empty where it was saved only once."""
    same = group["reproducible"]
    if same is None:
        return Cell("", Mood.ABSENT)
    return Cell("yes", Mood.GOOD) if same else Cell("no", Mood.WARN)


def bytes_of(group: Group) -> Figure | None:
    """Of all files; of some writers those of this run."""
    return group.figure("file_bytes") or group.figure("varying_bytes")


def over(group: Group) -> Cell:
    """By how much the files are larger than the state; less than 0 where they are compressed."""
    files, state = bytes_of(group), group.figure("state_bytes")
    if files is None or state is None:
        return Cell("", Mood.ABSENT)
    more = files.median / state.median - 1
    return Cell(f"{100 * more:+.2f} %", value=more)


def portability(study: Study) -> list[Table]:
    groups = study.groups("portability")
    if not groups:
        return []
    return [
        listing(
            "", ("Saved by", "Framework", "Read by", "Outputs"), groups, of_outputs,
            names=lambda group: (*whose(group), group.text("reader")),
            failed=lambda group: f"{writer(group)} to {group.text('reader')}",
        )
    ]  # fmt: skip


def of_outputs(group: Group) -> tuple[Cell, ...]:
    mood = Mood.GOOD if group["verdict"] == "equal outputs" else Mood.WARN
    return (Cell(": ".join(filter(None, map(group.text, ("verdict", "reason")))), mood),)
