"""The resources of this process, in numbers that a leak moves and little else does."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

# So that malloc keeps nothing back: else up to 240 KB a thread in its caches, and freed tensors.
EXACT_MALLOC = {
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.mmap_threshold=65536",
}


# A save that is durable may still delete an older checkpoint, with up to 72 KB of its own.
LOOKS = 5
BETWEEN_LOOKS_SECONDS = 0.002


@dataclass(frozen=True)
class Sample:
    """With no save in flight and after a collection."""

    saves: int
    heap_bytes: int  # handed out by malloc, Python's own arenas apart
    rss_bytes: int
    descriptors: int
    threads: int
    objects: int  # of our types


class _MallocInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def heap_bytes() -> int:
    """In use in all heaps of malloc, and mapped for single allocations; the least of some looks."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _MallocInfo
    looks = []
    for _ in range(LOOKS):
        info = mallinfo2()
        looks.append(int(info.uordblks + info.hblkhd))
        time.sleep(BETWEEN_LOOKS_SECONDS)
    return min(looks)


def take_sample(saves: int) -> Sample:
    gc.collect()
    return Sample(
        saves=saves,
        heap_bytes=heap_bytes(),
        rss_bytes=int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize(),
        descriptors=len(os.listdir("/proc/self/fd")),
        threads=len(os.listdir("/proc/self/task")),
        objects=sum(map(_is_ours, gc.get_objects())),
    )


def _is_ours(thing: object) -> bool:
    return str(type(thing).__module__).startswith(("deepfreeze", "concurrent.futures"))
