"""A directory for one proof; it stays if something was violated."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Workplace:
    """Goes when the proof is over, unless `keep` is set."""

    path: Path
    keep: bool = False


@contextmanager
def workplace(directory: Path | None, name: str) -> Iterator[Workplace]:
    place = Workplace(Path(tempfile.mkdtemp(prefix=f"{name}-", dir=directory)))
    try:
        yield place
    except BaseException:
        place.keep = True
        raise
    finally:
        if place.keep:
            print(f"kept: {place.path}", file=sys.stderr)
        else:
            shutil.rmtree(place.path)
