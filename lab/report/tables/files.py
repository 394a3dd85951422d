"""What the files are, and who else can read them."""

from lab.report.summary import Figure, Group, Study
from lab.report.table import Cell, Line, Mood, Table, amount, words
from lab.report.tables.common import absent, failures, framework, is_ours, split, writer
from lab.report.tables.speed import title


def formats(study: Study) -> list[Table]:
    found = split(study.groups("formats"), "workload")
    return [formats_table(workload, groups) for (workload,), groups in found.items()]


def formats_table(workload: str, groups: list[Group]) -> Table:
    columns = ("Writer", "Framework", "What the files are", "Files", "Size", "Over the state",
               "Same bytes again")  # fmt: skip
    lines = tuple(map(formats_line, groups))
    return Table(title(workload, groups), columns, lines, failures(groups))


def formats_line(group: Group) -> Line:
    names = words(writer(group), framework(group))
    if not group.ok:
        return Line((*names, absent(group)), is_ours(group))
    counts = words(group.text("container"), group.text("files") or "varies")
    return Line((*names, *counts, amount(bytes_of(group)), over(group), again(group)),
                is_ours(group))  # fmt: skip


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
    columns = ("Saved by", "Framework", "Read by", "Outputs")
    notes = failures(groups, lambda group: f"{writer(group)} to {group.text('reader')}")
    return [Table("", columns, tuple(map(portability_line, groups)), notes)]


def portability_line(group: Group) -> Line:
    names = words(writer(group), framework(group), group.text("reader"))
    if not group.ok:
        return Line((*names, absent(group)), is_ours(group))
    mood = Mood.GOOD if group["verdict"] == "equal outputs" else Mood.WARN
    return Line((*names, Cell(with_reason(group), mood)), is_ours(group))


def with_reason(group: Group) -> str:
    reason = group.text("reason")
    return f"{group['verdict']}: {reason}" if reason else group.text("verdict")
