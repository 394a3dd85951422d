"""Copies of a state for dcp.async_save(), in memory that is kept from save to save."""

from __future__ import annotations

import copy
from collections.abc import MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch.distributed.checkpoint.staging import AsyncStager as DcpStager
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from deepfreeze.dcp.staging_sets import (
    BufferSet,
    BufferSets,
    Copy,
    StagedState,
    copy_all,
    streams_after_callers,
)
from deepfreeze.errors import CheckpointError, EncodeError
from deepfreeze.frameworks.torch.tensors import is_special

_ATOMS = (type(None), bool, int, float, complex, str, bytes)


class AsyncStager(DcpStager):
    """Copies all tensors of a state, those in host memory too, and everything else in it.

    At most `sets` copies are in memory. Each is used again once the save of it is over; stage()
    waits for that, up to `wait_seconds` (CheckpointTimeoutError). The future of a save that failed
    holds its copy until the future is dropped. Device memory is copied through pinned memory, after
    the work that is already queued on the caller's current stream.

    With `background` stage() gives a future, and the state must not change before
    `response.staging_completion`. Without it the state may change once async_save() returns. Give
    one stager to all saves, and close() it after the last. For one thread.
    """

    _synchronize_after_execute = False

    def __init__(
        self, *, sets: int = 2, background: bool = False, wait_seconds: float = 600.0
    ) -> None:
        if sets < 1:
            raise ValueError(f"sets: {sets} is less than 1")
        self._sets = BufferSets(sets, wait_seconds)
        self._thread = ThreadPoolExecutor(1, "df-stage") if background else None
        self._closed = False

    def __repr__(self) -> str:
        how = "closed" if self._closed else "in background" if self._thread else "at once"
        return f"<{type(self).__name__}: {how}>"

    def stage(self, state_dict: dict[str, Any]) -> Future[dict[str, Any]] | dict[str, Any]:
        """A copy of the state, or its future. EncodeError if a value can't be copied."""
        if self._closed:
            raise CheckpointError("stage a state: the stager is closed", code="invalid_argument")
        buffers = self._sets.take()
        try:
            plan = _Copying(buffers)
            staged = StagedState(plan.copied(state_dict, ()))
            buffers.finish()
        except BaseException:
            self._sets.give_back(buffers)
            raise
        self._sets.give_back_with(staged, buffers)
        copies, streams = plan.copies, streams_after_callers(plan.copies)
        if self._thread is None:
            copy_all(copies, streams)
            return staged

        def finish() -> dict[str, Any]:
            copy_all(copies, streams)
            return staged

        return self._thread.submit(finish)

    def synchronize_staging(self) -> None:
        """Returns once every state that stage() was given is copied."""
        if self._thread is not None:
            self._thread.submit(int).result()  # the one thread takes one after the other

    def close(self) -> None:
        """Ends the thread and frees the memory, that of saves under way as they end."""
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        self._sets.clear()


class _Copying:
    """Goes through one state: copies everything but tensors at once, and notes the tensors."""

    def __init__(self, buffers: BufferSet) -> None:
        self._buffers = buffers
        self.copies: list[Copy] = []

    def copied(self, value: Any, place: tuple[Any, ...]) -> Any:
        """A copy of the value at `place`; the elements of its tensors are still missing."""
        if type(value) in _ATOMS:
            return value
        if isinstance(value, DTensor):
            local = self.copied(value.to_local().detach(), (*place, "local"))
            return DTensor(local, value._spec, requires_grad=False)
        if isinstance(value, torch.Tensor) and _is_dense(value):
            return self._tensor(value.detach(), place)
        if isinstance(value, MutableMapping):
            made = copy.copy(value)
            for key in made:
                made[key] = self.copied(made[key], (*place, key))
            return made
        if type(value) in (list, tuple):
            items = enumerate(value)
            return type(value)(self.copied(item, (*place, index)) for index, item in items)
        try:
            return copy.deepcopy(value)
        except Exception as cause:
            name = ".".join(map(str, place))
            kind = type(value).__qualname__
            raise EncodeError(f"stage {name}: a {kind} can't be copied: {cause!r}") from cause

    def _tensor(self, source: torch.Tensor, place: tuple[Any, ...]) -> torch.Tensor:
        buffer = self._buffers.buffer_for(place, source)
        self.copies.append((buffer, source))
        return buffer


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the tensor consists of its elements in memory and nothing else."""
    if tensor.is_meta or is_special(tensor) or is_traceable_wrapper_subclass(tensor):
        return False
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)
