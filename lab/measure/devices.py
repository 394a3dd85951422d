"""The device that all of this runs on, what it is, and the speed of its link to the host."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from typing import Any

import torch

from lab.measure.machine import cpu_model
from lab.measure.usage import memory_bytes

LINK_PASSES = 10
CUDA = "cuda"
ASK_DRIVER = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def missing(device: str) -> str:
    """Why it can't be used; empty where it can."""
    if device != CUDA or torch.cuda.is_available():
        return ""
    return (
        f"torch {torch.__version__} finds no CUDA device here; "
        "`--device cpu --quick` tries all of it without one"
    )


def describe(device: str) -> dict[str, Any]:
    if device != CUDA:
        return {"name": f"no GPU: {cpu_model()}"}
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
        "driver": driver(),
        "cuda": torch.version.cuda,
    }


def driver() -> str:
    try:
        done = subprocess.run(ASK_DRIVER, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.split()[0] if done.stdout else "unknown"


def event() -> torch.cuda.Event:
    """On the current stream, now."""
    made = torch.cuda.Event(enable_timing=True)
    made.record()
    return made


def seconds_between(began: torch.cuda.Event, ended: torch.cuda.Event) -> float:
    """Waits for the later one."""
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1e3


@dataclass(frozen=True)
class Link:
    """Plain copies from the device into pinned memory; without a device, of the host's memory."""

    gb_per_second: list[float]  # of each
    resident: float | None  # share of the pinned memory that counts as the process's own


def link(device: str, nbytes: int) -> Link:
    on_device = device == CUDA
    source = torch.zeros(nbytes, dtype=torch.uint8, device=device)
    before = memory_bytes("VmRSS")
    target = torch.zeros(nbytes, dtype=torch.uint8, pin_memory=on_device)
    resident = (memory_bytes("VmRSS") - before) / nbytes if on_device else None
    copy = copy_seconds_by_events if on_device else copy_seconds_by_clock
    copy(target, source)  # the first one also wakes the link
    return Link([nbytes / 1e9 / copy(target, source) for _ in range(LINK_PASSES)], resident)


def copy_seconds_by_events(target: torch.Tensor, source: torch.Tensor) -> float:
    began = event()
    target.copy_(source, non_blocking=True)
    return seconds_between(began, event())


def copy_seconds_by_clock(target: torch.Tensor, source: torch.Tensor) -> float:
    began = time.perf_counter()
    target.copy_(source)
    return time.perf_counter() - began
