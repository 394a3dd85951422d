"""Reads the tensors of a checkpoint in pieces, so that memory is bounded whatever their size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepfreeze import _core
from deepfreeze.state.dtypes import stored_bytes

PIECE_BYTES = 1 << 20
_BATCH_BYTES = 8 << 20  # read by one call, whose threads share it

Shape = tuple[int, ...]


class Form(NamedTuple):
    """A tensor's name and form, the same at each step that has it so."""

    key: str
    dtype: str
    shape: Shape
    logical: str = ""

    @property
    def elements(self) -> int:
        """Its number of stored elements."""
        return prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """The size of one stored element."""
        return stored_bytes(self.dtype, ())

    @property
    def bytes(self) -> int:
        """Its size."""
        return stored_bytes(self.dtype, self.shape)


def forms_of(checkpoint: _core.OpenCheckpoint) -> list[Form]:
    """All tensors, sorted by key."""
    return [
        Form(spec.key, spec.dtype, tuple(spec.shape), spec.logical_dtype)
        for spec in checkpoint.tensors()
    ]


@dataclass(frozen=True)
class Piece:
    """A part of one tensor that is contiguous in it."""

    form: Form
    offset: Shape
    extent: Shape

    @property
    def bytes(self) -> int:
        """Its size."""
        return prod(self.extent) * self.form.item_bytes


def pieces_of(form: Form) -> Iterator[Piece]:
    """Divides a tensor into pieces of PIECE_BYTES at most, in their order. None if it is empty."""
    if form.bytes == 0:
        return
    axis, inner = len(form.shape), 1  # axes from `axis` on are whole in each piece
    most = PIECE_BYTES // form.item_bytes
    while axis > 0 and inner * form.shape[axis - 1] <= most:
        axis -= 1
        inner *= form.shape[axis]
    if axis == 0:
        yield Piece(form, (0,) * len(form.shape), form.shape)
        return
    divided, rest = axis - 1, form.shape[axis:]
    rows = max(1, most // inner)
    for outer in np.ndindex(*form.shape[:divided]):
        for begin in range(0, form.shape[divided], rows):
            count = min(rows, form.shape[divided] - begin)
            yield Piece(
                form,
                (*map(int, outer), begin, *(0 for _ in rest)),
                (*(1 for _ in outer), count, *rest),
            )


def batches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Groups pieces that are read together."""
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        if batch and size + piece.bytes > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += piece.bytes
    if batch:
        yield batch


class Buffer:
    """Memory for one batch, used again for the next."""

    def __init__(self) -> None:
        self._memory: NDArray[np.uint8] = np.empty(_BATCH_BYTES, np.uint8)

    def read(self, checkpoint: _core.OpenCheckpoint, batch: list[Piece]) -> list[NDArray[np.uint8]]:
        """The bytes of each piece, verified, until the next call. CorruptError."""
        size = sum(_aligned(piece.bytes) for piece in batch)
        if size > self._memory.size:
            self._memory = np.empty(size, np.uint8)
        found, targets, place = [], [], 0
        for piece in batch:
            data = self._memory[place : place + piece.bytes]
            place += _aligned(piece.bytes)
            found.append(data)
            targets.append(_target(piece, data))
        checkpoint.read(targets, True)
        return found


def _aligned(size: int) -> int:
    return -(-size // 8) * 8  # NumPy views it as elements of up to 8 bytes


def _target(piece: Piece, data: NDArray[np.uint8]) -> Any:
    box = None if piece.extent == piece.form.shape else (piece.offset, piece.extent)
    return _core.Target(piece.form.key, data.ctypes.data, piece.bytes, box)
