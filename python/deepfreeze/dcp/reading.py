"""The read items of a load, from a checkpoint into the memory that the planner has for them.

The planner is told nothing before all data has been read and verified. Live tensors that are
contiguous in host memory are read into directly, before that, as in any restore.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlanner, ReadItem

from deepfreeze import _core
from deepfreeze.base.progress import watched
from deepfreeze.dcp.stored import Form, Stored
from deepfreeze.errors import CheckpointError, MismatchError
from deepfreeze.frameworks.torch.tensors import copyable, dtype_from_name, dtype_name, stored_box
from deepfreeze.state.dtypes import stored_bytes

_PLAIN = (torch.Tensor, torch.nn.Parameter)


@dataclass(eq=False)
class _Part:
    """Some elements of a stored tensor, and the live memory that they are read for."""

    item: ReadItem
    live: torch.Tensor
    direct: bool = False  # whether they are read straight into it
    buffer: torch.Tensor | None = None

    def put(self) -> None:
        """Copies the buffer into the live memory, in its dtype."""
        if self.buffer is None:
            return
        lazy = self.live.is_conj() or self.live.is_neg()
        if lazy or self.live.dtype != self.buffer.dtype:
            self.live.copy_(self.buffer)
        else:
            copyable(self.live).copy_(copyable(self.buffer))


class Loading:
    """One load of one rank. `allow_pickle`: the planner may be given pickles, which it runs."""

    def __init__(
        self, items: Iterable[ReadItem], planner: LoadPlanner, *, allow_pickle: bool
    ) -> None:
        self._planner = planner
        self._allow_pickle = allow_pickle
        self._objects: list[ReadItem] = []
        self._tensors: list[ReadItem] = []
        for item in items:
            is_object = item.type == LoadItemType.BYTE_IO
            (self._objects if is_object else self._tensors).append(item)
        self._parts: list[_Part] = []  # of these tensors, once the planner was asked for them
        self._values: dict[str, Any] = {}
        self._stored: Stored | None = None
        self.modified = False  # whether live tensors may have been written

    def read(self, stored: Stored, *, shows: bool = False) -> None:
        """Reads and verifies all items. May be called again with another checkpoint.

        `shows`: whether progress is printed. CorruptError if the data does not verify;
        MismatchError if shapes differ; code "unsupported" for a pickle.
        """
        names = {item.storage_index.fqn for item in self._objects}
        self._check_pickles(stored, names)
        if not self._parts:
            self._parts = [_part_of(item, self._planner) for item in self._tensors]
        for part in self._parts:
            part.direct = _is_direct(part.live, stored.forms[part.item.storage_index.fqn])
        _keep_apart(self._parts)
        parts = [part for part in self._parts if part.live.numel()]
        label = f"load step {stored.info.step}" if shows else None
        self.modified = self.modified or any(part.direct for part in self._parts)
        with watched(label, sum(part.live.nbytes for part in parts)) as counter:
            stored.checkpoint.read([_target(part, stored) for part in parts], True, *counter)
        self._values = stored.values(names)
        self._stored = stored

    def deliver(self) -> None:
        """Gives the planner all values that were read."""
        with torch.no_grad():
            for part in self._parts:
                part.put()
                self._planner.commit_tensor(part.item, part.live)
        for item in self._objects:
            self._planner.load_bytes(item, self._bytes_of(item.storage_index.fqn))

    def _bytes_of(self, name: str) -> io.BytesIO:
        """A planner takes values as torch.save() writes them."""
        assert self._stored is not None
        if self._stored.is_pickled(name):
            return io.BytesIO(self._values[name])
        made = io.BytesIO()
        torch.save(self._values[name], made)
        made.seek(0)
        return made

    def _check_pickles(self, stored: Stored, names: Iterable[str]) -> None:
        pickled = sorted(name for name in names if stored.is_pickled(name))
        if pickled and not self._allow_pickle:
            raise CheckpointError(
                f"load step {stored.info.step}: {', '.join(pickled)} could only be stored as a "
                "pickle, which can run anything when it is loaded; if you trust its writer, "
                "StorageReader(..., allow_pickle=True) loads it",
                code="unsupported",
            )


def _part_of(item: ReadItem, planner: LoadPlanner) -> _Part:
    live = planner.resolve_tensor(item).detach()
    if tuple(live.shape) != tuple(item.lengths):
        raise MismatchError(
            f"{item.dest_index.fqn}: the planner has {list(live.shape)} for "
            f"{list(item.lengths)} of the stored tensor"
        )
    return _Part(item, live)


def _is_direct(live: torch.Tensor, form: Form) -> bool:
    return (
        type(live) in _PLAIN
        and live.is_cpu
        and live.is_contiguous()
        and not (live.is_conj() or live.is_neg())
        and dtype_name(live.dtype) == form[0]
    )


def _keep_apart(parts: Iterable[_Part]) -> None:
    """If parts share live memory, only one is read into it; the others are copied afterwards."""
    end = 0
    for part in sorted(parts, key=lambda part: part.live.data_ptr() if part.direct else 0):
        if part.direct and part.live.numel():
            begin = part.live.data_ptr()
            part.direct = begin >= end
            end = max(end, begin + part.live.nbytes)


def _target(part: _Part, stored: Stored) -> _core.Target:
    """The memory that the part's bytes are read into: a new buffer, unless it is direct."""
    name = part.item.storage_index.fqn
    dtype, shape = stored.forms[name]
    spec = stored.specs[stored.keys[name]]
    extent = tuple(part.item.lengths)
    box = stored_box((tuple(part.item.storage_offsets), extent), spec.shape)
    size = stored_bytes(spec.dtype, box[1])
    if part.direct:
        torch.autograd.graph.increment_version(part.live)
        address = part.live.data_ptr()
    else:
        raw = torch.empty(size, dtype=torch.uint8, device="cpu")
        part.buffer = raw.view(dtype_from_name(dtype)).view(extent)
        address = raw.data_ptr()
    return _core.Target(spec.key, address, size, None if extent == shape else box)
