"""Host memory that copies of a state are made into, kept from one save to the next."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Hashable
from typing import Any

import torch

from deepfreeze.errors import CheckpointTimeoutError
from deepfreeze.frameworks.torch.tensors import copyable

Copy = tuple[torch.Tensor, torch.Tensor]  # to, from


class StagedState(dict[str, Any]):
    """A copy of a state. Once it is garbage-collected, its memory is used again."""


class BufferSet:
    """Memory for one copy of a state: a tensor for each place in it."""

    def __init__(self) -> None:
        self._last: dict[Hashable, torch.Tensor] = {}
        self._used: dict[Hashable, torch.Tensor] = {}

    def buffer_for(self, place: Hashable, source: torch.Tensor) -> torch.Tensor:
        """Host memory for the tensor at `place`; pinned if `source` is on a device."""
        key = (place, source.dtype, source.shape, source.is_cpu)
        buffer = self._last.get(key)
        if buffer is None:
            buffer = torch.empty(
                source.shape, dtype=source.dtype, device="cpu", pin_memory=not source.is_cpu
            )
        self._used[key] = buffer
        return buffer

    def finish(self) -> None:
        """Frees the buffers that this copy did not use."""
        self._last, self._used = self._used, {}


class BufferSets:
    """At most `count` sets. A set is in use until the copy in it is dropped. For any thread."""

    def __init__(self, count: int, wait_seconds: float) -> None:
        self._count = count
        self._wait_seconds = wait_seconds
        # Its lock is reentrant: the collector may drop a copy while this thread holds it.
        self._changed = threading.Condition()
        self._free: list[BufferSet] = []
        self._made = 0

    def take(self) -> BufferSet:
        """A free set; CheckpointTimeoutError if none becomes free in time."""
        with self._changed:
            if not self._is_one_free():
                gc.collect()  # a failed save's traceback may hold its copy in a cycle
            if not self._changed.wait_for(self._is_one_free, self._wait_seconds):
                raise CheckpointTimeoutError(
                    f"stage a state: {self._count} copies are still held after "
                    f"{self._wait_seconds:g} s, by saves under way or by futures of failed ones"
                )
            if self._free:
                return self._free.pop()
            self._made += 1
            return BufferSet()

    def _is_one_free(self) -> bool:
        return bool(self._free) or self._made < self._count

    def give_back(self, buffers: BufferSet) -> None:
        """The set may be taken again."""
        with self._changed:
            self._free.append(buffers)
            self._changed.notify_all()

    def give_back_with(self, state: StagedState, buffers: BufferSet) -> None:
        """Makes the set free once `state` is garbage-collected."""
        weakref.finalize(state, self.give_back, buffers).atexit = False

    def clear(self) -> None:
        """Frees the memory of sets that nobody has."""
        with self._changed:
            self._made -= len(self._free)
            self._free = []


def copy_all(copies: list[Copy], streams: dict[torch.device, torch.Stream]) -> None:
    """Makes the copies, of each device on its stream, and waits for them."""
    try:
        for to, source in copies:
            with torch.no_grad(), streams.get(source.device, contextlib.nullcontext()):
                copyable(to).copy_(copyable(source), non_blocking=True)
    finally:
        for stream in streams.values():
            stream.synchronize()


def streams_after_callers(copies: list[Copy]) -> dict[torch.device, torch.Stream]:
    """A new stream for each device that the copies read, ordered after the caller's queued work.

    Without that, tensors could be copied while an optimizer's step() is still updating them.
    """
    streams: dict[torch.device, torch.Stream] = {}
    for _, source in copies:
        device = source.device
        if device.type != "cpu" and device not in streams:
            streams[device] = torch.Stream(device)
            streams[device].wait_stream(torch.accelerator.current_stream(device))
    return streams
