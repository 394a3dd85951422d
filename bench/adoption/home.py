"""Moves a state of torch into the arena, and saves it from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bench.adoption.library import AdoptedState, ChecksumTime, Form
from deepfreeze.adapters.base import Entry
from deepfreeze.capture import Capture, paused_gc, walk
from deepfreeze.memo import Memo


class Home:
    """Where a state lives from now on: what its optimizers own, at its place of the file.

    The rest stays where it is and is copied in each save(): nothing stands before its changes, and
    batch-norm statistics change in forward. So is what has left its place. For states whose tensors
    share no memory: of two that do, one would move and the other stay behind.
    """

    def __init__(
        self,
        state: Mapping[str, object],
        optimizers: Iterable[Optimizer],
        directory: Path,
        checksum_time: ChecksumTime,
        *,
        has_fences: bool = True,
    ) -> None:
        self._state = dict(state)
        self._memo = Memo()
        entries = self._walk().entries
        self._forms = [form_of(entry) for entry in entries]
        self._native = AdoptedState(directory, self._forms, checksum_time, has_fences=has_fences)
        base = address_of(self._native)
        self._places = [base + offset for offset in self._native.offsets]
        self._move(entries, optimizers)

    def _walk(self) -> Capture:
        with paused_gc():
            return walk(self._state, self._memo)

    def _move(self, entries: Sequence[Entry], optimizers: Iterable[Optimizer]) -> None:
        owned = {tensor.data_ptr(): tensor for tensor in owned_by(optimizers)}
        for entry, offset in zip(entries, self._native.offsets, strict=True):
            tensor = owned.get(entry.address)
            if tensor is not None and can_move(tensor, entry):
                move(tensor, self._native, offset)

    def save(self, step: int) -> None:
        """Begins a checkpoint; what lives here must not change before fence()."""
        capture = self._walk()
        self._native.save(step, capture.text, self._sources(capture.entries))

    def _sources(self, entries: Sequence[Entry]) -> list[int | None]:
        forms = [form_of(entry) for entry in entries]
        if forms != self._forms:
            raise RuntimeError("the state has other tensors than when it moved in")
        return [
            None if entry.address == place or entry.bytes == 0 else entry.address
            for entry, place in zip(entries, self._places, strict=True)
        ]

    @property
    def native(self) -> AdoptedState:
        """The saves and their memory."""
        return self._native


def form_of(entry: Entry) -> Form:
    return Form(entry.key, entry.dtype, entry.shape, entry.logical_dtype)


def address_of(native: AdoptedState) -> int:
    return torch.frombuffer(native.memory, dtype=torch.uint8).data_ptr()


def owned_by(optimizers: Iterable[Optimizer]) -> Iterator[Tensor]:
    """Parameters and state: what changes in step() alone."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            yield from group["params"]
        values: Iterable[dict[str, Any]] = optimizer.state.values()
        for state in values:
            yield from (value for value in state.values() if isinstance(value, Tensor))


def can_move(tensor: Tensor, entry: Entry) -> bool:
    """Whether the entry is this tensor, as it lies in memory."""
    return tensor.is_contiguous() and tensor.nbytes == entry.bytes and entry.bytes > 0


def move(tensor: Tensor, native: AdoptedState, offset: int) -> None:
    """The same tensor, for all who hold it, in other memory.

    Each has a storage of its own: views of one would share a version counter, and autograd would
    take the change of one for a change of all.
    """
    place = torch.frombuffer(
        native.memory, dtype=tensor.dtype, count=tensor.numel(), offset=offset
    ).view(tensor.shape)
    place.copy_(tensor.detach())
    tensor.data = place
