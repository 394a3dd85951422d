"""Where torch's tensors lie, and to which streams the work on them is given."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import torch

from deepfreeze import _core
from deepfreeze.adapters.base import HOST, Entry
from deepfreeze.errors import CheckpointError


@cache
def reads_devices() -> bool:
    """Whether the engine reads and writes the memory of CUDA devices itself."""
    if torch.version.cuda is None:  # of the CPU, or of AMD, whose devices torch calls cuda as well
        return False
    try:
        _core.check_devices()
    except CheckpointError:
        return False
    return True


def ordinal_of(tensor: torch.Tensor) -> int | None:
    """HOST or the device that the engine takes its memory from; None where that can't be."""
    if tensor.is_cpu:
        return HOST
    if tensor.is_cuda and reads_devices():
        return int(tensor.get_device())
    return None


def stream_of(ordinal: int) -> int:
    """The stream that work on this device is given to now; 0 is the default, and host memory's."""
    return 0 if ordinal == HOST else int(torch.cuda.current_stream(ordinal).cuda_stream)


def streams_of(ordinals: Iterable[int]) -> list[tuple[int, int]]:
    """The same of several devices, with each."""
    return [(ordinal, stream_of(ordinal)) for ordinal in sorted(ordinals)]


def streams_under(entries: Iterable[Entry]) -> list[tuple[int, int]]:
    """Of all devices that entries lie on."""
    return streams_of({entry.device for entry in entries} - {HOST})


def is_capturing() -> bool:
    """Whether the work that is given now goes into a CUDA graph, and runs when that is replayed."""
    if not torch.cuda.is_initialized():  # the program uses none: don't be the first to
        return False
    return reads_devices() and torch.cuda.is_current_stream_capturing()
