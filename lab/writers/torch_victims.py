"""DeepFreeze and what comes with torch, as their documentation says."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from lab.writers import torch_savers
from lab.writers.deepfreeze_victim import DeepFreezeVictim
from lab.writers.saver import Pending
from lab.writers.victim import OnePath, Stepped


class DeepFreeze(DeepFreezeVictim, torch_savers.DeepFreeze):
    """A dict of tensors."""


class DeepFreezeLatency(DeepFreezeVictim, torch_savers.DeepFreezeLatency):
    """An optimizer is attached."""


class TorchSave(OnePath, torch_savers.TorchSave):
    """torch.load as the tutorials have it, which is not the mapped way that is measured."""

    filename = "latest.pt"

    def restore(self, directory: Path, step: int) -> None:
        self.take(torch.load(self.place(directory, step)))


class TorchSaveStepped(Stepped, torch_savers.TorchSave):
    """A path for each step."""

    def restore(self, directory: Path, step: int) -> None:
        self.take(torch.load(self.place(directory, step)))


class TorchSaveLegacy(OnePath, torch_savers.TorchSaveLegacy):
    """The format before zip files."""

    filename = "latest.pt"


class TorchSaveRenamed(TorchSave):
    """To another name, then over the one before."""

    def save(self, directory: Path, step: int) -> Pending:
        path = self.place(directory, step)
        part = path.with_suffix(".part")
        torch.save(self.tensors, part)
        os.replace(part, path)
        return Pending()


class TorchSaveSynced(TorchSave, torch_savers.TorchSaveSynced):
    """The same with both syncs: what a careful user writes."""

    def save(self, directory: Path, step: int) -> Pending:
        return torch_savers.TorchSaveSynced.save(self, directory, step)


class Safetensors(OnePath, torch_savers.Safetensors):
    filename = "model.safetensors"


class Dcp(OnePath, torch_savers.Dcp):
    """One checkpoint id for all saves, as in its tutorial."""

    filename = "checkpoint"


class DcpAsync(Stepped, torch_savers.DcpAsync):
    """An id for each step, as in the tutorial of async_save."""
