"""The devices that a state lies on. Only torch's have streams that the engine waits for."""

from __future__ import annotations

from collections.abc import Iterable

from deepfreeze.base.imported import imported


def streams_of(ordinals: Iterable[int]) -> list[tuple[int, int]]:
    """Each device with its current stream."""
    from deepfreeze.frameworks.torch import device as torch_device

    return torch_device.streams_of(ordinals)


def is_capturing() -> bool:
    """Whether work is now captured into a CUDA graph, and runs only when that is replayed."""
    if not imported("torch"):
        return False
    from deepfreeze.frameworks.torch import device as torch_device

    return torch_device.is_capturing()
