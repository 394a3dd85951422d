"""The device's limit, by fio: what a file of the same bytes costs with nothing around it."""

import json
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.measure.files import forget, sync_directory

BLOCK_BYTES = 4 << 20
DEPTH = 4
WRITES = 3
SETTLE_SECONDS = 0.5  # a device is slower while it discards what was deleted
ENGINES = ("io_uring", "libaio")  # the second where the first is forbidden

REGISTERED = ["--fixedbufs=1", "--registerfiles=1"]  # io_uring's own


class FioError(Exception):
    """It did not run, or failed."""


@dataclass(frozen=True)
class Transfer:
    bytes: int
    seconds: float
    cpu_seconds: float
    engine: str

    def seconds_for(self, nbytes: int) -> float:
        return nbytes * self.seconds / self.bytes


def measure(directory: Path, nbytes: int) -> dict[str, Any]:
    """A new file written, written over, read cold; one written from registered buffers."""
    if shutil.which("fio") is None:
        raise FioError("not installed")
    path = directory / "fio"
    size = -(-nbytes // BLOCK_BYTES) * BLOCK_BYTES
    try:
        registered = write_new(path, size, registered=True)
        found = {"write": write_new(path, size), "overwrite": transfer(path, "write", size)}
        forget(path)
        found["read"] = transfer(path, "read", size)
    finally:
        path.unlink(missing_ok=True)
    if registered.engine == ENGINES[0]:
        found["registered"] = registered
    return {name: asdict(one) for name, one in found.items()}


def write_new(path: Path, size: int, *, registered: bool = False) -> Transfer:
    """The median of as many as a saver is asked for, each after what was deleted has settled."""
    found = []
    for _ in range(WRITES):
        path.unlink(missing_ok=True)
        sync_directory(path.parent)
        time.sleep(SETTLE_SECONDS)
        found.append(transfer(path, "write", size, registered=registered))
    return sorted(found, key=lambda one: one.seconds)[WRITES // 2]


def transfer(path: Path, direction: str, size: int, *, registered: bool = False) -> Transfer:
    errors = []
    for engine in ENGINES:
        words = command(path, direction, size, engine)
        words += REGISTERED if registered and engine == ENGINES[0] else []
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return parsed(json.loads(done.stdout), direction, engine)
        errors.append(f"{engine}: {done.stderr.strip() or done.stdout.strip()}")
    raise FioError("; ".join(errors))


def command(path: Path, direction: str, size: int, engine: str) -> list[str]:
    options = {
        "name": "limit",
        "filename": str(path),
        "rw": direction,
        "bs": BLOCK_BYTES,
        "iodepth": DEPTH,
        "size": size,
        "direct": 1,
        "ioengine": engine,
        "output-format": "json",
    }
    if direction == "write":
        options |= {"end_fsync": 1, "overwrite": 0}
    return ["fio", *(f"--{name}={value}" for name, value in options.items())]


def parsed(output: dict[str, Any], direction: str, engine: str) -> Transfer:
    job = output["jobs"][0]
    seconds = max(1, job[direction]["runtime"]) / 1e3
    cpu = seconds * (job["usr_cpu"] + job["sys_cpu"]) / 100
    return Transfer(job[direction]["io_bytes"], seconds, cpu, engine)
