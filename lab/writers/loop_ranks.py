"""Ways in which the ranks of one data-parallel job save: one for all, or all together."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import async_save, save

from lab.measure.files import sync_directory
from lab.networks.torch_workloads import Training
from lab.writers.loop import Saver, SaveRecord, Window, WindowLatency
from lab.writers.loop_peers import DcpAsync, Peer, Retention, TorchSave
from lab.writers.loop_together import ByRankZero, EachAlone, Ranked, Together, size_of


class OthersRetention(Retention):
    """Of the ranks that don't delete, because rank 0 does."""

    def committed(self, path: Path) -> None:
        """Nothing."""


class OfTorch(Ranked):
    """The rank is that of torch.distributed."""

    def rank(self) -> int:
        return dist.get_rank()


class AllWrite(OfTorch, EachAlone, TorchSave):
    """What people do who have no more than torch.save."""

    name = "torch-save-each"
    title = "torch.save + fsync by each rank"


class OneOfAll(OfTorch, ByRankZero, TorchSave):
    """Rank 0 saves for all, which wait for it in their next step."""

    title = "torch.save + fsync by rank 0"


class DcpSave(Peer):
    """dcp.save by all ranks, each what the planner gives it."""

    name = "dcp-save"
    title = "dcp.save"
    synced = "files, no directory"

    def __init__(self, training: Training, directory: Path, every: int) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(training, directory / f"rank-{dist.get_rank()}", every)
        self.retention = Retention() if dist.get_rank() == 0 else OthersRetention()
        self.shared = directory

    def save(self, record: SaveRecord, began: float) -> None:
        path = self.shared / f"step-{record.step}"
        save(self.values(record.step), checkpoint_id=path)
        self.commit(record, began, path, path / ".metadata")

    def settle(self) -> None:
        self.records[-1].own_bytes = dcp_bytes(self.shared, self.records[-1])


def dcp_bytes(shared: Path, record: SaveRecord) -> int:
    """Of the files that are this rank's by their names."""
    return size_of(shared.glob(f"step-{record.step}/__{dist.get_rank()}_*"))


class DcpAsyncTogether(DcpAsync):
    """dcp.async_save by all ranks, over a group of its own: its thread has collectives too."""

    def __init__(self, training: Training, directory: Path, every: int) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(training, directory / f"rank-{dist.get_rank()}", every)
        self.retention = Retention() if dist.get_rank() == 0 else OthersRetention()
        self.group = dist.new_group(backend="gloo")
        self.shared = directory

    def start(self, path: Path, record: SaveRecord) -> Callable[[], object]:
        started: Any = async_save(
            self.values(record.step),
            storage_writer=FileSystemWriter(self.shared / path.name),
            async_stager=self.stager,
            process_group=self.group,
        )
        return started.result  # type: ignore[no-any-return]

    def commit(self, record: SaveRecord, began: float, path: Path, marker: Path) -> None:
        shared = self.shared / path.name
        super().commit(record, began, shared, shared / marker.name)

    def settle(self) -> None:
        self.records[-1].own_bytes = dcp_bytes(self.shared, self.records[-1])


class DirectorySynced(Peer):
    """What DCP leaves out is done by the bench: the directory, and its name."""

    synced = "all"

    def commit(self, record: SaveRecord, began: float, path: Path, marker: Path) -> None:
        super().commit(record, began, path, marker)
        shared = self.directory.parent
        sync_directory(shared / path.name)
        sync_directory(shared)
        record.durable_seconds = time.perf_counter() - began


class DcpSaveSynced(DirectorySynced, DcpSave):
    title = "dcp.save, directory synced"


class DcpAsyncSynced(DirectorySynced, DcpAsyncTogether):
    title = "dcp.async_save, directory synced"


class WindowTogether(OfTorch, Together, Window):
    """As torch.distributed joins them."""

    title = "DeepFreeze, by all ranks"


SAVERS: tuple[type[Saver], ...] = (
    Saver, Window, WindowLatency, OneOfAll, DcpSave, DcpAsyncTogether,
)  # fmt: skip
