"""A shuffled data loader whose position and future can be saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import torch
from torch import Tensor
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler

Loader: TypeAlias = StatefulDataLoader[tuple[Tensor, ...]]


def resumable_loader(data: TensorDataset, batch: int, seed: int) -> Loader:
    """Two generators, because the loader draws a seed for its workers at every epoch.

    A resumed epoch puts back the shuffling generator as it was before the permutation and draws
    that again, but not the seed. Were both drawn from one generator (`shuffle=True, generator=g`),
    or the seed from the global one, the epochs after a resume would differ.
    """
    order = torch.Generator().manual_seed(seed)
    sampler = RandomSampler(data, generator=order)
    worker_seeds = torch.Generator().manual_seed(seed)
    return StatefulDataLoader(
        data, batch_size=batch, sampler=sampler, generator=worker_seeds, drop_last=True
    )


def endless(loader: Loader) -> Iterator[tuple[Tensor, ...]]:
    """Batches, epoch after epoch; the first epoch goes on at the restored position."""
    while True:
        yield from loader
