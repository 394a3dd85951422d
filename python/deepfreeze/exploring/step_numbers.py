"""Computes the numbers of one step: reads it, and the step before it, once, piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deepfreeze import _core
from deepfreeze.errors import CheckpointError
from deepfreeze.exploring.cache import StepNumbers, Table
from deepfreeze.exploring.kinds import kinds_of
from deepfreeze.exploring.tensor_numbers import BINS, QUANTITIES, TensorNumbers
from deepfreeze.exploring.tensor_reading import Buffer, Form, Piece, batches, forms_of, pieces_of

OnBytes = Callable[[int], None]
DAMAGE = ("corrupt", "incomplete")  # codes of errors of which the step itself is the cause
_CHANGES = [QUANTITIES.index(name) for name in ("delta", "cosine", "changed")]


@dataclass
class Computed:
    """The numbers of one step, and the damage that was found on the way."""

    numbers: StepNumbers
    damaged: dict[str, str] = field(default_factory=dict)  # by key: the cause
    uncompared: dict[str, str] = field(default_factory=dict)  # the same, of the earlier step

    @property
    def is_whole(self) -> bool:
        """Whether another look would find nothing more, so that the numbers may be kept."""
        return not self.damaged and not self.uncompared


class _Earlier:
    """The step before, for as long as it can be read."""

    def __init__(self, info: _core.CheckpointInfo | None) -> None:
        self._buffer = Buffer()
        self._checkpoint: _core.OpenCheckpoint | None = None
        self._forms: dict[str, Form] = {}
        self._cause = ""  # why it can't be read, or no longer
        self._failed_at_once = False
        if info is not None:
            try:
                self._checkpoint = _core.open_checkpoint(info)
                self._forms = {form.key: form for form in forms_of(self._checkpoint)}
            except CheckpointError as error:
                self._checkpoint, self._cause, self._failed_at_once = None, str(error), True

    def has(self, form: Form) -> bool:
        return self._checkpoint is not None and self._forms.get(form.key) == form

    def missed(self, form: Form) -> str:
        """Why a piece of the tensor was not given, though it may have the tensor; "" if it was."""
        return self._cause if self._failed_at_once or self._forms.get(form.key) == form else ""

    def read(self, batch: list[Piece]) -> dict[int, NDArray[np.uint8]]:
        """The bytes of those pieces that it has in the same form, by their place in the batch."""
        places = [place for place, piece in enumerate(batch) if self.has(piece.form)]
        if self._checkpoint is None or not places:
            return {}
        try:
            found = self._buffer.read(self._checkpoint, [batch[place] for place in places])
        except CheckpointError as error:
            self._checkpoint, self._cause = None, str(error)
            return {}
        return dict(zip(places, found, strict=True))


def _table_of(checkpoint: _core.OpenCheckpoint, like: Table | None) -> Table:
    """The tensors of a step; `like` itself if they are the same."""
    forms = tuple(forms_of(checkpoint))
    if like is not None and like.forms == forms:
        return like
    return Table(forms, tuple(kinds_of(checkpoint.objects(), [form.key for form in forms])))


def from_ranges(info: _core.CheckpointInfo, like: Table | None = None) -> StepNumbers:
    """The numbers of a header alone, if the step was saved with statistics."""
    checkpoint = _core.open_checkpoint(info)
    table = _table_of(checkpoint, like)
    rows = np.full((len(QUANTITIES), len(table.forms)), np.nan)
    named = {name: rows[place] for place, name in enumerate(QUANTITIES)}
    for place, found in enumerate(checkpoint.ranges()):
        if found is None:
            continue
        least, greatest, finite, non_finite = found
        named["non_finite"][place] = non_finite
        if finite:
            named["min"][place], named["max"][place] = least, greatest
    return StepNumbers(table, rows, np.zeros((len(table.forms), BINS), np.uint8))


def compute(
    info: _core.CheckpointInfo,
    earlier: _core.CheckpointInfo | None,
    on_bytes: OnBytes,
    like: Table | None = None,
) -> Computed:
    """The numbers of a step. CheckpointError if its header is damaged or it can't be read."""
    checkpoint = _core.open_checkpoint(info)
    table = _table_of(checkpoint, like)
    forms = table.forms
    sums = {form.key: TensorNumbers(form.dtype, form.elements) for form in forms}
    before, buffer = _Earlier(earlier), Buffer()
    damaged: dict[str, str] = {}
    uncompared: dict[str, str] = {}
    for batch in batches(piece for form in forms for piece in pieces_of(form)):
        data = _read(checkpoint, buffer, batch, damaged)
        old = before.read(batch)
        for place, piece in enumerate(batch):
            if place in data:
                sums[piece.form.key].add(data[place], old.get(place))
            if place not in old and (cause := before.missed(piece.form)):
                uncompared[piece.form.key] = cause
        on_bytes(sum(piece.bytes for piece in batch))
    rows = np.full((len(QUANTITIES), len(forms)), np.nan)
    bins = np.zeros((len(forms), BINS), np.uint8)
    for place, form in enumerate(forms):
        if form.key not in damaged:
            rows[:, place] = sums[form.key].result()
            bins[place] = sums[form.key].histogram()
        if form.key in uncompared:  # sums of some of its pieces say nothing about it
            rows[_CHANGES, place] = np.nan
    return Computed(StepNumbers(table, rows, bins), damaged, uncompared)


def _read(
    checkpoint: _core.OpenCheckpoint, buffer: Buffer, batch: list[Piece], damaged: dict[str, str]
) -> dict[int, NDArray[np.uint8]]:
    """The bytes of each piece by its place; those that do not verify are noted instead."""
    try:
        return dict(enumerate(buffer.read(checkpoint, batch)))
    except CheckpointError as error:
        if error.code not in DAMAGE:  # deleted, or the disk fails
            raise
        if len(batch) == 1:
            damaged[batch[0].form.key] = str(error)
            return {}
    found = {}
    for place, piece in enumerate(batch):
        for data in _read(checkpoint, buffer, [piece], damaged).values():
            found[place] = data.copy()
    return found
