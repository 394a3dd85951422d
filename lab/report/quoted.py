"""Single figures of lab/results/figures.json, by their names: for documents that quote them."""

from decimal import ROUND_HALF_UP, Decimal
from functools import cache

from lab.report.results import SEPARATOR, Row, stored


@cache
def known() -> dict[str, list[Row]]:
    return stored()


def quoted(section: str, title: str, row: str, column: str) -> Row:
    """The figure of one cell. `title` is how the heading above the table begins."""
    found = [
        each
        for each in known()[section]
        if each["what"] == column
        and each["where"].startswith(title)
        and each["where"].endswith(SEPARATOR + row)
    ]
    if len(found) != 1:
        raise LookupError(f"{section}, {title}, {row}, {column}: {len(found)} figures, not one")
    return found[0]


def rounded(value: float, digits: int) -> str:
    """Halves go up, as readers expect of a figure that they look up."""
    return f"{Decimal(str(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)}"
