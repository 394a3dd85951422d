"""What a reader hands to whoever saves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from deepfreeze.adapters.base import Entry
from deepfreeze.capture import walk
from deepfreeze.errors import CheckpointError
from deepfreeze.importing.progress import Progress
from deepfreeze.importing.source_files import SourceFile, fault


@dataclass
class Content:
    """A source, checked as a whole: a state tree and the arrays that it names."""

    tree: str
    entries: list[Entry]
    owners: list[object]  # of the memory that the entries point into
    files: list[SourceFile]
    warnings: list[str] = field(default_factory=list)


def content_of(state: object, source: Path, files: list[SourceFile]) -> Content:
    """A state that was read; CheckpointError where it holds what can't be stored."""
    try:
        capture = walk(state)
    except CheckpointError as cause:
        raise fault(source, "", cause, cause.code) from cause
    return Content(capture.text, capture.entries, [capture], files)


@dataclass(frozen=True)
class Reading:
    """What readers are given besides the source."""

    scratch_folder: Path  # on the disk where the checkpoint will be
    progress: Callable[[str, int], Progress]  # of a label and all bytes
