"""The savers beside a training, and torch_checkpointing, with the parts that only a device needs.

All note when the state was captured. What a library does not sync, the bench does, and it counts.
"""

import importlib.util
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

import deepfreeze as df
from lab.measure.devices import event, seconds_between
from lab.measure.files import sync_all
from lab.writers import loop_peers as peers
from lab.writers import torch_savers
from lab.writers.loop import Saver, SaveRecord, Window
from lab.writers.saver import Pending

PINNED = torch.cuda.is_available()  # without a device, DCP's stager refuses to pin


class DeepFreeze(Window):
    """By default, its optimizer attached: fences are waited for by the device's stream."""

    name = "df"
    title = "DeepFreeze"

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        self.on_device = any(tensor.is_cuda for tensor in training.tensors())
        self.hook_event: torch.cuda.Event | None = None
        self.waits: list[tuple[SaveRecord, torch.cuda.Event, torch.cuda.Event]] = []
        super().__init__(training, directory, every)

    def note(self, step: int, handle: df.SaveHandle | None, call_seconds: float) -> None:
        super().note(step, handle, call_seconds)
        if handle is not None:
            record, began = self.records[-1], time.perf_counter() - call_seconds
            handle.captured.add_done_callback(lambda _: captured(record, began))

    def begin_hook(self, *_: object) -> None:
        self.hook_event = event() if self.on_device else None
        super().begin_hook()

    def end_fence(self, *_: object) -> None:
        super().end_fence()
        if self.records and self.hook_event is not None:
            self.waits.append((self.records[-1], self.hook_event, event()))

    def settle(self) -> None:
        super().settle()
        for record, began, ended in self.waits:
            record.stream_wait_seconds += seconds_between(began, ended)


def captured(record: SaveRecord, began: float) -> None:
    record.captured_seconds = time.perf_counter() - began


class Synced(peers.Peer):
    """Durable once all is synced, by whom ever; captured once its library says so."""

    def commit(self, record: SaveRecord, began: float, path: Path) -> None:
        if self.synced != "all":
            sync_all(path)
        super().commit(record, began, path)


class NotesStaging(Synced):
    """Staged beside the training."""

    def note_captured(self, record: SaveRecord, began: float) -> None:
        captured(record, began)


class DcpAsync(Synced, peers.DcpAsync):
    """As async_save is without a stager: a new one for each save, staged before it returns."""

    title = "dcp.async_save, its default stager"
    kind = torch_savers.DcpAsync


def is_used_up() -> bool:
    """Whether a DefaultStager stages once only: that of torch 2.11 empties itself behind it."""
    stager = torch_savers.new_stager(beside=False)
    try:
        for _ in range(2):
            stager.stage({"a": OrderedDict(b=torch.zeros(1))})
    except KeyError:
        return True
    finally:
        stager.close()
    return False


USED_UP = is_used_up()


class DcpAsyncPinned(torch_savers.DcpAsyncBeside):
    """DefaultStagers as their defaults are, but for memory that processes share."""

    saved = False

    def make_stager(self) -> DefaultStager:
        if not PINNED:
            return super().make_stager()
        return DefaultStager(StagingOptions(use_shared_memory=False))

    def save(self, directory: Path, step: int) -> Pending:
        if USED_UP and self.saved:
            self.stager.close()  # the save before is over: it was waited for
            self.stager = self.make_stager()
        self.saved = True
        return super().save(directory, step)


class DcpStaged(NotesStaging, peers.DcpStagedBeside):
    title = (
        f"dcp.async_save, {'a' if USED_UP else 'one'} {'pinned' if PINNED else 'pageable'} stager"
        f"{' for each save' if USED_UP else ''}, staged beside"
    )
    kind = DcpAsyncPinned


class TorchSnapshot(Synced, peers.TorchSnapshot):
    """As it is; only its files are synced."""


class TorchCheckpointing(NotesStaging):
    """By its manager, which saves in a process of its own."""

    name = "torch-checkpointing"
    title = "torch_checkpointing async"
    synced = "nothing"
    kind = torch_savers.TorchCheckpointing
    marker = "state_0.pt"
    beside = True

    @classmethod
    def missing(cls) -> str:
        return "" if importlib.util.find_spec("torch_checkpointing") else "not installed"


SAVERS: tuple[type[Saver], ...] = (
    DeepFreeze,
    peers.TorchSave,
    DcpAsync,
    DcpStaged,
    TorchSnapshot,
    TorchCheckpointing,
)
