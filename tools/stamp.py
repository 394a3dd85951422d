"""Stamps: remember the content that a finished step worked from, so that it is not done again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
VENV = ROOT / ".venv"

_SKIPPED_FOLDERS = {"__pycache__", ".pytest_cache"}


def files_under(*names: str) -> list[Path]:
    """Every file of the named files and folders, sorted; missing ones are left out."""
    found: set[Path] = set()
    for name in names:
        path = ROOT / name
        if path.is_file():
            found.add(path)
        else:
            found.update(p for p in path.rglob("*") if p.is_file() and not _skipped(p))
    return sorted(found)


def _skipped(path: Path) -> bool:
    return not _SKIPPED_FOLDERS.isdisjoint(path.relative_to(ROOT).parts)


def digest(files: Iterable[Path], *extra: str) -> str:
    """A hash over the files' names and bytes, and the extra words."""
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.relative_to(ROOT)}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    for word in extra:
        total.update(f"\0{word}".encode())
    return total.hexdigest()


class Stamp:
    """One remembered step. `is_current` before the work, `write` after it succeeded."""

    def __init__(self, path: Path, content: str) -> None:
        self._path = path
        self._content = content

    def is_current(self) -> bool:
        try:
            return self._path.read_text() == self._content
        except OSError:
            return False

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(self._content)
