"""DeepFreeze and what comes with torch, as their documentation says."""

from __future__ import annotations

import os
from pathlib import Path

import torch

import deepfreeze as df
from bench.storage import torch_savers
from bench.storage.saver import Pending
from bench.torture.state import OLDER
from bench.torture.victim import OnePath, Stepped, Victim


class DeepFreeze(torch_savers.DeepFreeze, Victim):
    """With default settings, which keep every checkpoint."""

    def open(self, directory: Path) -> None:
        self.checkpointer = df.Checkpointer(directory)

    def load_newest(self, directory: Path) -> list[int]:
        with df.Checkpointer(directory) as checkpointer:
            if checkpointer.restore({"state": self.tensors}) is None:
                raise LookupError("nothing was ever committed")
            report = checkpointer.last_restore
        assert report is not None
        return [step for step, _ in report.fell_back_from]

    def load_older(self, directory: Path) -> None:
        self.restore(directory, OLDER)


class TorchSave(OnePath, torch_savers.TorchSave):
    """torch.load as the tutorials have it, which is not the mapped way that is measured."""

    filename = "latest.pt"

    def restore(self, directory: Path, step: int) -> None:
        self.take(torch.load(self.place(directory, step)))


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
