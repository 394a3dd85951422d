"""What reads the rows of a study and shows them; measures nothing."""

from pathlib import Path

from lab.report.compare import Comparison, compare
from lab.report.markdown import summary
from lab.report.page import page
from lab.report.summary import read

__all__ = ["Comparison", "compare", "write"]


def write(directory: Path) -> list[Path]:
    """report.html and summary.md from the rows that are there, also of an unfinished study."""
    study = read(directory)
    shown = {"report.html": page(study), "summary.md": summary(study)}
    for name, text in shown.items():
        (directory / name).write_text(text)
    return [directory / name for name in shown]
