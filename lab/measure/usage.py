"""What this process and those that it started use: processor, memory, writes."""

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def started(process: int | None = None) -> Iterator[int]:
    """Every living process below this one."""
    mine = os.getpid() if process is None else process
    for children in Path(f"/proc/{mine}/task").glob("*/children"):
        for child in map(int, read(children).split()):
            yield child
            yield from started(child)


def read(path: Path) -> str:
    """Empty where the process has ended meanwhile."""
    try:
        return path.read_text()
    except OSError:
        return ""


def cpu_seconds() -> float:
    """User and system, of all threads, of children that ended and of those that live."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    living = 0
    for child in started():
        fields = read(Path(f"/proc/{child}/stat")).rpartition(")")[2].split()
        living += sum(map(int, fields[11:15]))
    return time.process_time() + ended.ru_utime + ended.ru_stime + living / TICKS


def memory_bytes(field: str, process: int | str = "self") -> int:
    """One line of /proc/…/status: VmRSS, VmHWM, RssShmem."""
    lines = read(Path(f"/proc/{process}/status")).splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:")), 0)


def peak_bytes() -> int:
    """Of this process, and what its children have beside the memory that they share with it."""
    own = [memory_bytes("VmHWM", one) - memory_bytes("RssShmem", one) for one in started()]
    return memory_bytes("VmHWM") + sum(max(0, found) for found in own)


def forget_peak() -> None:
    for process in ("self", *map(str, started())):
        with contextlib.suppress(OSError):
            Path(f"/proc/{process}/clear_refs").write_text("5")


def all_written_bytes() -> int:
    """A child's writes count while it lives."""
    return sum(written_bytes(one) or 0 for one in (os.getpid(), *started()))


# The kernel's counts of a process. Imports no framework.


def written_bytes(process: int | str = "self") -> int | None:
    """The bytes that it has sent to block devices so far; None if the kernel won't say."""
    try:
        lines = Path(f"/proc/{process}/io").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes")), None)
