"""Results as lines of JSON, one a row, each written when it is known: a run may end early."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Row = dict[str, Any]


class Lines:
    def __init__(self, path: Path, append: bool = False) -> None:
        self.file = path.open("a" if append else "w")

    def add(self, kind: str, row: Row) -> None:
        self.file.write(json.dumps({"kind": kind, **row}, separators=(",", ":")) + "\n")
        self.file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.file.close()


def read(path: Path) -> list[Row]:
    """Empty where that part has not been run."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def of_kind(rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind]
