"""A small training on scikit-learn's digits, some of whose labels are wrong on purpose."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import Tensor, nn

import deepfreeze as df
from examples.digest import seed_generators
from examples.loader import endless, resumable_loader

CLASSES = 10
_TRAINED, _PLANTED = 1000, 100  # examples; a tenth has a wrong label
_BATCH, _SEED = 50, 7
STEPS, EVERY = 400, 40


@dataclass(frozen=True)
class Digits:
    """Images of 64 pixels from 0 to 1."""

    images: Tensor  # (n, 64)
    labels: Tensor  # (n,), as the training sees them
    planted: frozenset[int]  # the places of wrong labels
    probe: Tensor  # (m, 64), images that no training sees


def digits() -> Digits:
    """The same in every process."""
    loaded = load_digits()
    chance = torch.Generator().manual_seed(_SEED)
    order = torch.randperm(len(loaded.target), generator=chance)
    images = torch.tensor(loaded.data, dtype=torch.float32)[order] / 16
    labels = torch.tensor(loaded.target)[order][:_TRAINED].clone()
    wrong = torch.randperm(_TRAINED, generator=chance)[:_PLANTED]
    others = torch.randint(1, CLASSES, (_PLANTED,), generator=chance)
    labels[wrong] = (labels[wrong] + others) % CLASSES
    return Digits(images[:_TRAINED], labels, frozenset(wrong.tolist()), images[_TRAINED:])


def network() -> nn.Sequential:
    """Two hidden layers; "3" is the output of the second."""
    return nn.Sequential(
        nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, CLASSES)
    )


def train(run: str | os.PathLike[str], data: Digits) -> Path:
    """A run with a checkpoint at every 40th step; goes on if it was interrupted."""
    seed_generators(_SEED)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=0.02)
    loader = resumable_loader(
        torch.utils.data.TensorDataset(data.images, data.labels), _BATCH, _SEED
    )
    state = {
        "model": model, "optimizer": optimizer, "schedule": schedule, "data": loader,
        "rng": df.RNG(),
    }  # fmt: skip
    with df.Checkpointer(run, every=df.every(steps=EVERY)) as ckpt:
        start = ckpt.restore(state) or 0
        batches = endless(loader)
        for step in range(start + 1, STEPS + 1):
            images, labels = next(batches)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            schedule.step()
            ckpt.step(step, state, metrics={"loss": float(loss.detach())})
    return Path(run)
