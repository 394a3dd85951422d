"""Adoption as a way to save: its variants, and the same state never saved."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

import deepfreeze as df
from bench.adoption.home import Home
from bench.adoption.library import ChecksumTime, library_path
from bench.e2e.savers import Saver, SaveRecord
from bench.e2e.workloads import Training


class Adopting(Saver):
    """The state moves into the arena after its first step, when optimizers have theirs."""

    checksum_time: ClassVar[ChecksumTime] = ChecksumTime.BEFORE_RETURN

    def __init__(self, training: Training, directory: Path, every: int) -> None:
        super().__init__(training, directory, every)
        self.home: Home | None = None

    @classmethod
    def missing(cls) -> str:
        return "" if library_path().exists() else "its library is not built: make build"

    def moved_in(self) -> Home:
        if self.home is None:
            state = {**self.training.state, "rng": df.RNG()}
            optimizers = self.training.optimizers.values()
            self.home = Home(state, optimizers, self.directory, self.checksum_time)
        return self.home

    def close(self) -> None:
        if self.home is not None:
            self.home.native.close()


class Unsaved(Adopting):
    """What living in the arena does to training by itself: it has huge pages, say."""

    name = "adopt-unsaved"
    title = "adoption, never saved"

    def after_step(self, step: int) -> None:
        self.moved_in()


class Adopted(Adopting):
    """Checksummed by two threads before save() returns; the fence stands for the writes."""

    name = "adopt-crc-eager"
    title = "adoption, CRC in save()"
    synced = "all"
    is_baseline = False

    def before_update(self) -> None:
        if not self.records or self.home is None:
            return
        record = self.records[-1]
        began = time.perf_counter()
        reported = self.home.native.fence()
        record.fence_seconds += time.perf_counter() - began
        record.fence_reported_seconds = (record.fence_reported_seconds or 0.0) + reported

    def after_step(self, step: int) -> None:
        if step % self.every != 0:
            return
        began = time.perf_counter()
        self.moved_in().save(step)
        self.records.append(SaveRecord(step, time.perf_counter() - began))

    def drain(self) -> None:
        if self.home is not None:
            self.home.native.wait()

    def settle(self) -> None:
        for record in self.records:
            outcome = None if self.home is None else self.home.native.outcome(record.step)
            if outcome is None:
                record.error = "it has not settled"
                continue
            record.committed = outcome.committed
            record.durable_seconds = outcome.durable_seconds if outcome.committed else None
            record.error = outcome.error


class AdoptedIdle(Adopted):
    """Checksummed at idle priority beside training, the rest by the fence."""

    name = "adopt-crc-lazy"
    title = "adoption, CRC behind, idle"
    checksum_time = ChecksumTime.BEHIND_IDLE


class AdoptedBehind(Adopted):
    """The same at normal priority."""

    name = "adopt-crc-behind"
    title = "adoption, CRC behind"
    checksum_time = ChecksumTime.BEHIND_NORMAL


class AdoptedUnchecked(Adopted):
    """Without checksums: a bound, because such a file is refused."""

    name = "adopt-no-crc"
    title = "adoption, no CRC (can't be restored)"
    checksum_time = ChecksumTime.NEVER


ADOPTION: tuple[type[Saver], ...] = (
    Unsaved,
    Adopted,
    AdoptedIdle,
    AdoptedBehind,
    AdoptedUnchecked,
)
