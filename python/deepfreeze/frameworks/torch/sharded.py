"""DTensors: the part of a tensor that this rank has, as FSDP2 and tensor parallelism make it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import torch

from deepfreeze.base.imported import imported
from deepfreeze.errors import EncodeError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Box: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # its offset, and the shape of its whole
_PLAIN = (torch.Tensor, torch.nn.Parameter)


@dataclass(frozen=True)
class Shard:
    """This rank's part of one tensor."""

    local: torch.Tensor
    box: Box


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor."""
    if type(tensor) in _PLAIN or not imported("torch.distributed.tensor"):
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def local_of(value: object) -> object:
    """A DTensor's local tensor; any other value unchanged."""
    if isinstance(value, torch.Tensor) and is_sharded(value):
        return _local(value)
    return value


def copies_of(tensor: DTensor) -> int:
    """The number of ranks that have the same part of it."""
    mesh = tensor.device_mesh
    return prod(mesh.size(dim) for dim, each in enumerate(tensor.placements) if each.is_replicate())


def shard_of(tensor: torch.Tensor) -> Shard | None:
    """This rank's part of a DTensor; None for other tensors. EncodeError unless it is one box."""
    if not is_sharded(tensor):
        return None
    chunks = _chunks(tensor)
    local = _local(tensor)
    whole = tuple(tensor.shape)
    if not chunks:  # this rank has no part of the tensor
        return Shard(local.new_empty((0, *local.shape[1:])), ((0,) * len(whole), whole))
    if len(chunks) > 1:
        raise EncodeError(f"this rank has {len(chunks)} parts of it, but can store only one")
    offset, extent = chunks[0]
    if extent != tuple(local.shape):
        raise EncodeError(f"its part is {list(extent)}, and {list(local.shape)} is in memory")
    return Shard(local, (offset, whole))


def _local(tensor: DTensor | torch.Tensor) -> torch.Tensor:
    with torch.no_grad():  # otherwise autograd makes a view of it
        return tensor.to_local().detach()  # type: ignore[union-attr]


def _chunks(tensor: torch.Tensor) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Offsets and extents, as torch.distributed.checkpoint asks a DTensor for them."""
    try:
        chunks = tensor.__create_chunk_list__()  # type: ignore[attr-defined]
    except RuntimeError as cause:  # partial sums: no rank has the whole values
        raise EncodeError(f"its placement can't be stored: {cause}") from cause
    return [(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in chunks]
