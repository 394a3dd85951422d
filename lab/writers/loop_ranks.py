"""Ways in which the ranks of one data-parallel job save: one for all, or all together."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import async_save, save

from lab.measure.files import files_in, sync_directory
from lab.writers.loop import DeepFreezeSaver, Saver, SaveRecord, Window, WindowLatency
from lab.writers.loop_peers import DcpAsync, Peer, Retention, TorchSave
from lab.writers.saver import Pending


def size_of(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


class Ranked(Saver):
    """A saver that knows which rank it is of: a training of several ranks says it."""

    def rank(self) -> int:
        return int(self.training.rank)


class EachAlone(Ranked, Peer):
    """Every rank saves all that it has, in a place of its own."""

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        self.training = training
        directory.mkdir(exist_ok=True)
        super().__init__(training, directory / f"rank-{self.rank()}", every)

    def settle(self) -> None:
        newest = self.newest()
        self.records[-1].own_bytes = 0 if newest is None else size_of(files_in(newest))


class ByRankZero(EachAlone):
    """Rank 0 saves for all; where they must wait for it, they do so in their next step."""

    def after_step(self, step: int) -> None:
        if self.rank() == 0:
            super().after_step(step)
        elif step % self.every == 0:
            self.records.append(SaveRecord(step, committed=True))


class Together(Ranked, DeepFreezeSaver):
    """DeepFreeze, whose ranks share one checkpoint: rank 0 counts its files."""

    def settle(self) -> None:
        super().settle()
        if self.handles:
            self.records[-1].own_bytes = self.handles[-1][1].status().bytes

    def newest(self) -> Path | None:
        return super().newest() if self.rank() == 0 else None


class OfTorch(Ranked):
    """The rank is that of torch.distributed."""

    def rank(self) -> int:
        return dist.get_rank()


class AllWrite(OfTorch, EachAlone, TorchSave):
    """The way of people who have no more than torch.save."""

    name = "torch-save-each"
    title = "torch.save + fsync by each rank"


class OneOfAll(OfTorch, ByRankZero, TorchSave):
    """Rank 0 saves for all, which wait for it in their next step."""

    title = "torch.save + fsync by rank 0"


class OthersRetention(Retention):
    """Of the ranks that don't delete, because rank 0 does."""

    def committed(self, path: Path) -> None:
        """Nothing."""


class DcpTogether(Peer):
    """All ranks save into one place, each what DCP's planner gives it."""

    marker = ".metadata"

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(training, directory / f"rank-{dist.get_rank()}", every)
        self.retention = Retention() if dist.get_rank() == 0 else OthersRetention()
        self.shared = directory

    def settle(self) -> None:
        """Of the files that are this rank's by their names."""
        mine = self.shared.glob(f"step-{self.records[-1].step}/__{dist.get_rank()}_*")
        self.records[-1].own_bytes = size_of(mine)


class DcpSave(DcpTogether):
    """dcp.save by all ranks."""

    name = "dcp-save"
    title = "dcp.save"
    synced = "files, no directory"

    def make_writer(self) -> None:
        """DCP's own collective call needs none."""

    def start(self, record: SaveRecord) -> tuple[Path, Pending]:
        path = self.shared / f"step-{record.step}"
        save(self.values(record.step), checkpoint_id=path)
        return path, Pending()


class DcpAsyncTogether(DcpTogether, DcpAsync):
    """dcp.async_save by all ranks, over a group of its own: its thread has collectives too."""

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        super().__init__(training, directory, every)
        self.group = dist.new_group(backend="gloo")

    def start(self, record: SaveRecord) -> tuple[Path, Pending]:
        path = self.shared / f"step-{record.step}"
        started: Any = async_save(
            self.values(record.step), storage_writer=FileSystemWriter(path),
            async_stager=self.writer.stager, process_group=self.group,
        )  # fmt: skip
        return path, Pending(committed=started.result)


class DirectorySynced(Peer):
    """What DCP leaves out is done by the bench: the directory, and its name."""

    synced = "all"

    def commit(self, record: SaveRecord, began: float, path: Path) -> None:
        super().commit(record, began, path)
        sync_directory(path)
        sync_directory(path.parent)
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
