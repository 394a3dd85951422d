"""What a segment takes of the host's memory, and of the device's, at its peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from lab.measure.devices import CUDA
from lab.measure.loop_progress import Follower
from lab.measure.usage import forget_peak, memory_bytes, peak_bytes


@dataclass(frozen=True)
class Peaks:
    host_bytes: int  # above the process before the segment; with the processes that it started
    device_bytes: int | None  # allocated by torch, training included


class Meter:
    """Follows the segments of an experiment. What one took is known after its last step.

    Not later: a saver ends its processes when it is closed. What the last save takes was taken
    before, by those of the warm-up.
    """

    def __init__(self, steps: int, device: str) -> None:
        self.steps = steps
        self.device = device
        self.follower = Follower(steps)
        self.peaks: Peaks | None = None

    def __call__(self, label: str) -> Callable[[int], None]:
        give_back(self.device)
        self.peaks = None
        before = memory_bytes("VmRSS")
        forget_peak()
        show = self.follower(label)

        def follow(step: int) -> None:
            show(step)
            if step == self.steps:
                self.peaks = Peaks(peak_bytes() - before, device_peak(self.device))

        return follow


def give_back(device: str) -> None:
    """What torch keeps for later, of both memories; segments have collected their garbage."""
    if device == CUDA:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        empty_host_cache()
        torch.cuda.reset_peak_memory_stats()


def empty_host_cache() -> None:
    """By its name in torch 2.11 where it has none yet in torch.accelerator."""
    named = getattr(torch.accelerator, "empty_host_cache", None)
    (named or torch._C._host_emptyCache)()


def device_peak(device: str) -> int | None:
    return torch.cuda.max_memory_allocated() if device == CUDA else None
