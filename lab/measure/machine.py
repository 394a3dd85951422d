"""What a measurement ran on: enough to judge it, nothing that names the machine."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy


def describe(directory: Path, threads: int) -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "file_system": file_system(directory),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "numpy": numpy.__version__,
        "training_threads": threads,
        "load_average_before": os.getloadavg()[0],
        "commit": commit(),
    }


def describe_study(directory: Path) -> dict[str, Any]:
    """And the bounds that this machine sets to checkpoints, by its device under `directory`."""
    found = describe(directory, threads=len(os.sched_getaffinity(0)))
    return {**found, "direct_io": has_direct_io(directory), "root": os.geteuid() == 0}


def has_direct_io(directory: Path) -> bool:
    """Whether a file here can be opened past the page cache; without, DeepFreeze is buffered."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        try:
            os.close(os.open(file.name, os.O_RDWR | os.O_DIRECT))
        except OSError:
            return False
    return True


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def file_system(directory: Path) -> str:
    """The type of the file system that holds `directory`, e.g. ext4."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    found, longest = "unknown", -1
    for line in lines:
        fields, _, rest = line.partition(" - ")
        mount = Path(fields.split()[4])
        depth = len(mount.parts)
        # Of two mounts at one place the later one is seen.
        if directory.resolve().is_relative_to(mount) and depth >= longest:
            found, longest = rest.split()[0], depth
    return found


def commit() -> str:
    """Of the source tree, with "+" where it has changes; empty where git can't say."""
    root = Path(__file__).resolve().parents[2]
    try:
        head = git(root, "rev-parse", "--short=12", "HEAD")
        return head + ("+" if git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
