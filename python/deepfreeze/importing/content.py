"""The contents of a source, as a reader gives them to the code that saves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from deepfreeze.base.progress import Progress
from deepfreeze.errors import CheckpointError
from deepfreeze.importing.source_files import SourceFile, fault
from deepfreeze.saving.capture import walk
from deepfreeze.state.encoder import NODES_MAX
from deepfreeze.state.entry import Entry

_TEXT_MAX = 256 << 20  # the engine takes no more for all plain values


@dataclass
class Content:
    """A source, checked as a whole: a state tree and the arrays that it names."""

    tree: str
    entries: list[Entry]
    owners: list[object]  # of the memory that the entries point into
    files: list[SourceFile]
    warnings: list[str] = field(default_factory=list)
    unpacked_bytes: int | None = None  # of a compressed source: the size of its contents


def content_of(
    state: object, source: Path, files: list[SourceFile], unpacked_bytes: int | None = None
) -> Content:
    """The contents of a state; CheckpointError if it has a value that can't be stored."""
    if _has_more_text(state):
        raise fault(source, "", f"its texts have more than {_TEXT_MAX} characters", "unsupported")
    try:
        capture = walk(state)
    except CheckpointError as cause:
        raise fault(source, "", cause, cause.code) from cause
    owners: list[object] = [capture]
    return Content(capture.text, capture.entries, owners, files, unpacked_bytes=unpacked_bytes)


def _has_more_text(state: object) -> bool:
    """Whether the texts are too long to store: one text may stand in a million places."""
    waiting, found, seen = [state], 0, 0
    while waiting and seen < NODES_MAX:  # beyond it, the walk refuses
        value = waiting.pop()
        seen += 1
        if isinstance(value, str):
            found += len(value)
            if found > _TEXT_MAX:
                return True
        elif isinstance(value, dict):
            waiting += value.keys()
            waiting += value.values()
        elif isinstance(value, (list, tuple, set)):
            waiting += value
    return False


@dataclass(frozen=True)
class Reading:
    """The settings that a reader is given besides the source."""

    scratch_folder: Path  # on the disk that the checkpoint will be written to
    progress: Callable[[str, int], Progress]  # called with a label and the number of all bytes
