"""The devices of torch's tensors, and the streams that order the work on them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import torch

from deepfreeze import _core
from deepfreeze.errors import CheckpointError
from deepfreeze.state.entry import HOST, Entry


@cache
def reads_devices() -> bool:
    """Whether the engine reads and writes the memory of CUDA devices itself."""
    if torch.version.cuda is None:  # the CPU's torch, or AMD's, whose devices are named cuda, too
        return False
    try:
        _core.check_devices()
    except CheckpointError:
        return False
    return True


def ordinal_of(tensor: torch.Tensor) -> int | None:
    """HOST, or the device that the engine reads its memory from; None if it can't read it."""
    if tensor.is_cpu:
        return HOST
    if tensor.is_cuda and reads_devices():
        return int(tensor.get_device())
    return None


def stream_of(ordinal: int) -> int:
    """The device's current stream; 0 is the default stream, and stands for host memory."""
    return 0 if ordinal == HOST else int(torch.cuda.current_stream(ordinal).cuda_stream)


def streams_of(ordinals: Iterable[int]) -> list[tuple[int, int]]:
    """Each device with its current stream."""
    return [(ordinal, stream_of(ordinal)) for ordinal in sorted(ordinals)]


def streams_under(entries: Iterable[Entry]) -> list[tuple[int, int]]:
    """The devices that entries lie on, with their current streams."""
    return streams_of({entry.device for entry in entries} - {HOST})


def is_capturing() -> bool:
    """Whether work is now captured into a CUDA graph, and runs only when that is replayed."""
    if not torch.cuda.is_initialized():  # if the program does not use CUDA, don't start it
        return False
    return reads_devices() and torch.cuda.is_current_stream_capturing()
