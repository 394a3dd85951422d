"""The table of README.md beside peers: `python -m lab.report.readme_table` writes it anew.

Every number is one of lab/results/figures.json, or a sum of two of them.
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


@dataclass(frozen=True)
class Cell:
    """Where its figure stands; several columns are added up."""

    title: str
    row: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """A line of the table. `cells` are in the order of HEAD; None: no measurement."""

    what: str
    section: str
    cells: Sequence[Cell | None]
    unit: str = ""
    digits: int = 0


def line(what: str, section: str, title: str, rows: Sequence[str | None], *columns: str,
         unit: str = "", digits: int = 0) -> Line:  # fmt: skip
    """A line whose cells stand in one table."""
    cells = [None if row is None else Cell(title, row, columns) for row in rows]
    return Line(what, section, cells, unit, digits)


ALONE = ("DeepFreeze", "torch.save + fsync", "dcp.async_save, stager re-used",
         "torchsnapshot async_take", None)  # fmt: skip
FAULTY = ("DeepFreeze", "torch.save, fsync, renamed, fsync", "dcp.async_save, an id a step",
          "torchsnapshot", "Orbax CheckpointManager")  # fmt: skip
ON_DEVICE = ("DeepFreeze", "torch.save + fsync", "dcp.async_save, its default stager",
             "torchsnapshot.async_take", None)  # fmt: skip
AFTER = ("power cut after the save, ext4", "power cut after the save, xfs")
DURING = ("power cut in the save, ext4", "power cut in the save, xfs")

LINES = (
    Line("Run time, a checkpoint at every step, 2 cores", "frameworks", (
        Cell(RESNET50, "DeepFreeze", ("run time",)),
        Cell(RESNET50, "`torch.save`, fsync", ("run time",)),
        Cell(RESNET50, "`dcp.async_save`", ("run time",)),
        None,
        Cell(FLAX50, "Orbax, async", ("run time",)),
    ), " x", 2),
    line("Run time, every 4th step, one H200", "gpu", DEVICE, ON_DEVICE, "run time",
         unit=" x", digits=2),
    line("A save alone: training stands still", "storage-big", RESNET152, ALONE, "stall",
         unit=" ms"),
    line("A save alone: written and synced", "storage-big", RESNET152, ALONE, "durable GB/s",
         unit=" GB/s", digits=2),
    line("A restore from a cold disk", "storage-big", RESNET152, ALONE, "restore GB/s",
         unit=" GB/s", digits=2),
    line("One tensor read alone", "storage-big", RESNET152, ALONE, "one tensor",
         unit=" ms"),
    line("Memory above the state's own", "storage-big", RESNET152, ALONE, "RSS above state",
         unit=" x", digits=2),
    line("Flipped bits found, of 200", "torture", FAULTS, FAULTY, "one bit flipped"),
    line("Kept after a power cut, of 40", "torture", FAULTS, FAULTY, *AFTER),
    line("Restored after a power cut in the save, of 40", "torture", FAULTS, FAULTY, *DURING),
    line("Restored after a kill in the save, of 50", "torture", FAULTS, FAULTY,
         "killed in the save"),
)  # fmt: skip


def table() -> str:
    head = f"| | {' | '.join(HEAD)} | source |"
    rule = "|---|" + "---:|" * len(HEAD) + "---|"
    return "\n".join([head, rule, *map(line_text, LINES)])


def line_text(row: Line) -> str:
    texts = [ABSENT if cell is None else cell_text(row, cell) for cell in row.cells]
    texts[0] = f"**{texts[0]}**"
    return f"| {row.what} | {' | '.join(texts)} | [{row.section}] |"


def cell_text(row: Line, cell: Cell) -> str:
    found = (quoted(row.section, cell.title, cell.row, column) for column in cell.columns)
    return rounded(sum(float(each["value"]) for each in found), row.digits) + row.unit


def with_table(text: str) -> str:
    """The document with the table between its marks written anew."""
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError("README.md has no place for the table")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
