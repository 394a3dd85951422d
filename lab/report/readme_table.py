"""The table of README.md beside peers: `python -m lab.report.readme_table` writes it anew.

Every number is one of lab/results/figures.json, or a sum of several of them. Bold is the best of a
row, whoever has it. A raised number leads to a note, which README.md has below the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.report.quoted import quoted, rounded

README = Path(__file__).resolve().parents[2] / "README.md"
BEGIN, END = "<!-- written by lab.report.readme_table: begin -->", "<!-- end -->"
HEAD = ("DeepFreeze", "torch.save + fsync", "dcp.async_save", "torchsnapshot", "Orbax")
RESNET50 = "PyTorch 2.13, ResNet-50, Adam, batch 16 of 64x64 / every step"
FLAX50 = "JAX 0.10 (Flax NNX, Optax), ResNet-50, Adam, batch 16 of 64x64 / every step"
DEVICE = "window / ResNet-152 with Adam: 0.723 GB, a checkpoint every 4 steps"
RESNET152 = "ResNet-152 with Adam: 722.9 MB"
FAULTS = "A network of 12 layers"
ABSENT = "-"
OTHER_TRAINING, BY_HAND, BY_NAME, BY_AGENT, WAITED = "¹", "²", "³", "⁴", "⁵"


@dataclass(frozen=True)
class Cell:
    """Where its figure stands; several columns are added up."""

    title: str
    row: str
    columns: tuple[str, ...]
    note: str = ""
    is_compared: bool = True  # False: measured on something else than the rest of its row


@dataclass(frozen=True)
class Line:
    """A line of the table. `cells` are in the order of HEAD; None: no measurement."""

    what: str
    section: str
    cells: Sequence[Cell | None]
    unit: str = ""
    digits: int = 0
    most_is_best: bool = False


def line(what: str, section: str, title: str, rows: Sequence[str | None], *columns: str,
         notes: Sequence[str] = ("",) * len(HEAD), unit: str = "", digits: int = 0,
         most_is_best: bool = False) -> Line:  # fmt: skip
    """A line whose cells stand in one table."""
    cells = [None if row is None else Cell(title, row, columns, note)
             for row, note in zip(rows, notes, strict=True)]  # fmt: skip
    return Line(what, section, cells, unit, digits, most_is_best)


def beside_training(what: str, column: str, unit: str = "", digits: int = 0) -> Line:
    """A line of ResNet-50 that saves at every step."""
    return Line(what, "frameworks", (
        Cell(RESNET50, "DeepFreeze", (column,)),
        Cell(RESNET50, "`torch.save`, fsync", (column,)),
        Cell(RESNET50, "`dcp.async_save`", (column,)),
        None,
        Cell(FLAX50, "Orbax, async", (column,), OTHER_TRAINING, is_compared=False),
    ), unit, digits)  # fmt: skip


ALONE = ("DeepFreeze", "torch.save + fsync", "dcp.async_save, stager re-used",
         "torchsnapshot async_take", None)  # fmt: skip
FAULTY = ("DeepFreeze", "torch.save, fsync, renamed, fsync", "dcp.async_save, an id a step",
          "torchsnapshot", "Orbax CheckpointManager")  # fmt: skip
ON_DEVICE = ("DeepFreeze", "torch.save + fsync", "dcp.async_save, its default stager",
             "torchsnapshot.async_take", None)  # fmt: skip
AFTER = ("power cut after the save, ext4", "power cut after the save, xfs")
DURING = ("power cut in the save, ext4", "power cut in the save, xfs")
KILLED = "killed in the save"

LINES = (
    beside_training("Run time, a checkpoint at every step, 2 CPU cores", "run time", digits=2),
    line("Run time, a checkpoint every 4th step, one H200", "gpu", DEVICE, ON_DEVICE, "run time",
         digits=2),
    beside_training("Training waits for each save, fence included", "stall, ms", " ms"),
    line("A save by itself, until it is synced", "storage-big", RESNET152, ALONE, "durable GB/s",
         unit=" GB/s", digits=2, most_is_best=True),
    line("A restore from a cold disk", "storage-big", RESNET152, ALONE, "restore GB/s",
         unit=" GB/s", digits=2, most_is_best=True),
    line("Reading one tensor", "storage-big", RESNET152, ALONE, "one tensor", unit=" ms"),
    line("Memory that a save takes, 1 = the state's size", "storage-big", RESNET152, ALONE,
         "RSS above state", digits=2),
    line("Flipped bits found, of 200", "torture", FAULTS, FAULTY, "one bit flipped",
         most_is_best=True),
    line("Finished saves still there after a power cut, of 40", "torture", FAULTS, FAULTY, *AFTER,
         notes=("", BY_HAND, "", "", ""), most_is_best=True),
    line("A state loads after a power cut or kill in a save, of 90", "torture", FAULTS, FAULTY,
         *DURING, KILLED, notes=("", BY_HAND, BY_NAME, BY_NAME, ""), most_is_best=True),
    line("Captured saves still there after a kill, of 50", "torture-captured", FAULTS,
         ("DeepFreeze with an agent", *FAULTY[1:]), "killed once captured",
         notes=(BY_AGENT, WAITED, "", WAITED, ""), most_is_best=True),
)  # fmt: skip


def table() -> str:
    head = f"| | {' | '.join(HEAD)} | source |"
    rule = "|---|" + "---:|" * len(HEAD) + "---|"
    return "\n".join([head, rule, *map(line_text, LINES)])


def line_text(row: Line) -> str:
    texts = [ABSENT if cell is None else cell_text(row, cell) for cell in row.cells]
    return f"| {row.what} | {' | '.join(texts)} | [{row.section}] |"


def cell_text(row: Line, cell: Cell) -> str:
    text = rounded(figure(row, cell), row.digits) + row.unit
    text = f"**{text}**" if is_best(row, cell) else text
    return f"{text} {cell.note}" if cell.note else text


def is_best(row: Line, cell: Cell) -> bool:
    """Whether no other figure of the row, as it is shown, is better. If all are equal, none is."""
    shown = [shown_figure(row, each) for each in row.cells if each and each.is_compared]
    best = max(shown) if row.most_is_best else min(shown)
    return cell.is_compared and len(set(shown)) > 1 and shown_figure(row, cell) == best


def shown_figure(row: Line, cell: Cell) -> float:
    return float(rounded(figure(row, cell), row.digits))


def figure(row: Line, cell: Cell) -> float:
    found = (quoted(row.section, cell.title, cell.row, column) for column in cell.columns)
    return sum(float(each["value"]) for each in found)


def with_table(text: str) -> str:
    """The document with the table between its marks written anew."""
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError("README.md has no place for the table")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
