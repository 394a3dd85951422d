"""Copies each new checkpoint of a run past the page cache: `plain_copy RUN FAR BYTES_PER_SECOND`.

The least that any flush to another place costs, for comparison: nothing is checked, and only the
newest checkpoint is copied. It ends with its standard input.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import sys
import time
from pathlib import Path

CHUNK_BYTES = 4 << 20
LOOK_SECONDS = 0.005


def newest(run: Path) -> Path | None:
    return max((path.parent for path in run.glob("step-*/manifest.json")), default=None)


def copy_file(source: Path, target: Path, bytes_per_second: float, buffer: mmap.mmap) -> None:
    """FileNotFoundError: the run has deleted it."""
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT
    began, copied = time.monotonic(), 0
    with contextlib.ExitStack() as files:
        reader = os.open(source, os.O_RDONLY | os.O_DIRECT)
        files.callback(os.close, reader)
        writer = os.open(target, flags, 0o644)
        files.callback(os.close, writer)
        while count := os.readv(reader, [buffer]):
            whole = -(-count // mmap.PAGESIZE) * mmap.PAGESIZE  # O_DIRECT writes whole pages
            os.writev(writer, [memoryview(buffer)[:whole]])
            copied += count
            time.sleep(max(0.0, began + copied / bytes_per_second - time.monotonic()))
        os.fsync(writer)


def main(run: Path, far: Path, bytes_per_second: float) -> None:
    far.mkdir(exist_ok=True)
    buffer = mmap.mmap(-1, CHUNK_BYTES)
    done = None
    while not select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
        step = newest(run)
        if step is None or step == done:
            continue
        with contextlib.suppress(FileNotFoundError):
            for file in step.glob("*.safetensors"):
                copy_file(file, far / file.name, bytes_per_second, buffer)
            done = step


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
