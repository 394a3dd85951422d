"""Who of a job's ranks saves, and where: for the savers of any framework."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab.measure.files import files_in
from lab.writers.loop import DeepFreezeSaver, Saver, SaveRecord
from lab.writers.loop_peers import Peer


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
