"""What a study ran on: bench's description, and what this machine lets checkpoints do."""

import os
import tempfile
from pathlib import Path
from typing import Any

from lab.measure import machine


def describe(directory: Path) -> dict[str, Any]:
    """Of the device under `directory`, among other things."""
    found = machine.describe(directory, threads=len(os.sched_getaffinity(0)))
    return {**found, "direct_io": has_direct_io(directory), "root": os.geteuid() == 0}


def has_direct_io(directory: Path) -> bool:
    """Whether a file here can be opened past the page cache; without, DeepFreeze is buffered."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        try:
            os.close(os.open(file.name, os.O_RDWR | os.O_DIRECT))
        except OSError:
            return False
    return True
