"""The fail points of the product, from its own sources: a new one can't be forgotten.

Nothing at run time knows them all, because each registers when it is passed. So that none is
missed, a use that is neither a literal nor one of a record's three is an error.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_USE = re.compile(r"\bDF_(?:FAIL|STALL)_POINT\(\s*([^)]*?)\s*\)")
_RECORD = re.compile(r"\bRecordFailPoints\s+k\w+\s*=\s*\{([^}]*)\}")
_LITERAL = re.compile(r'"([a-z_.]+)"')
_OF_RECORD = re.compile(r"points\.(?:written|renamed|synced)")
_DEFINITION = "fail_point.h"


def fail_points() -> list[str]:
    """Their names, in order."""
    names: set[str] = set()
    for path in sorted((ROOT / "src").rglob("*.[ch]*")):
        if path.name == _DEFINITION or path.stem.endswith("_test"):
            continue
        text = path.read_text()
        for use in _USE.findall(text):
            names |= _named(path, use)
        for record in _RECORD.findall(text):
            names |= set(_LITERAL.findall(record))
    return sorted(names)


def fail_points_of_ranks() -> list[str]:
    """The points that no process passes alone; tests/ranks kills there."""
    return [name for name in fail_points() if name.startswith("await.")]


def fail_points_of_object_stores() -> list[str]:
    """Passed on a tier without hard links; src/tiering/shared_files_test.cc ends there."""
    return [
        *(name for name in fail_points() if name.startswith("sweep.")),
        "flush.referred",
        "flush.shared",
    ]


def fail_points_of_nodes() -> list[str]:
    """Passed by jobs on several nodes alone; src/protect/*_test.cc end there."""
    return [name for name in fail_points() if name.startswith("parity.")]


def fail_points_of_one() -> list[str]:
    """All others."""
    others = {*fail_points_of_ranks(), *fail_points_of_object_stores(), *fail_points_of_nodes()}
    return sorted(set(fail_points()) - others)


def _named(path: Path, use: str) -> set[str]:
    literal = _LITERAL.fullmatch(use)
    if literal is None and not _OF_RECORD.fullmatch(use):
        raise ValueError(f"{path}: fail point {use}: its name can't be read from the source")
    return {literal.group(1)} if literal else set()
