"""Writes a result beside a run, for the view Analysis of `deepfreeze explore`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

Axis = tuple[str, Sequence[object]]  # its title, and the name of each row or column


def write_matrix(
    run: Path, name: str, title: str, value: str, rows: Axis, columns: Axis,
    values: Sequence[Sequence[float]], about: str = "",
) -> Path:  # fmt: skip
    """Writes analysis/NAME.json whole, in place of an older one. docs/explore.md has the format."""
    record = {
        "format": 1,
        "title": title,
        "about": about,
        "value": value,
        "rows": {"title": rows[0], "names": [str(each) for each in rows[1]]},
        "columns": {"title": columns[0], "names": [str(each) for each in columns[1]]},
        "values": [list(row) for row in values],
    }
    path = run / "analysis" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record), encoding="utf-8")
    os.replace(new, path)
    return path
