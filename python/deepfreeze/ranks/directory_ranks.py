"""Ranks without a runtime: started by hand or by a scheduler, with a directory that all see."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from deepfreeze.base.arguments import absolute
from deepfreeze.ranks.directory_meeting import meet
from deepfreeze.ranks.polling import polls
from deepfreeze.ranks.store_ranks import LateError, StoreRanks


class DirectoryRanks(StoreRanks):
    """`world_size` processes that talk through small files in a directory, not the run's.

    They find each other there when they are made, whatever files dead processes have left. `job`
    tells one start of the job from another (the number in the scheduler's queue, for example), and
    is the same on all ranks. Without it, a process of an earlier start that still waits may be
    taken for one of these, or be in the way (TimeoutError, which says so). A later meeting under
    the same job name ends the earlier one: its ranks get a ConnectionError. The directory may be
    deleted once the job has ended.

    ValueError for an impossible rank, and if rank 0 has another world size; TimeoutError names the
    ranks that don't come within `timeout_seconds`; OSError if the directory can't be used.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        rank: int,
        world_size: int,
        job: str = "",
        timeout_seconds: float = 900.0,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"ranks: rank {rank} of {world_size}")
        super().__init__(rank, world_size, timeout_seconds)
        place = absolute(directory, "directory")
        place.mkdir(parents=True, exist_ok=True)
        self._place = meet(place, job, rank, world_size, timeout_seconds)

    def _set(self, key: str, value: bytes) -> None:
        unfinished = self._place / f".{secrets.token_hex(8)}"
        try:
            unfinished.write_bytes(value)
            unfinished.rename(self._path_of(key))
        except FileNotFoundError as cause:
            raise self._another_job() from cause

    def _take(self, keys: Sequence[str]) -> list[bytes]:
        found: dict[str, bytes] = {}
        for _ in polls(self.timeout_seconds):
            for key in keys:
                if key not in found:
                    with contextlib.suppress(FileNotFoundError):
                        found[key] = self._path_of(key).read_bytes()
            if len(found) == len(keys):
                for key in keys:
                    self._path_of(key).unlink()
                return [found[key] for key in keys]
            if not self._place.exists():
                raise self._another_job()
        missing = ", ".join(key.rpartition("/")[2] for key in keys if key not in found)
        raise LateError(f"nothing from or for rank {missing} in {self._place}")

    def _path_of(self, key: str) -> Path:
        return self._place / key.replace("/", "-")

    def _another_job(self) -> ConnectionError:
        return ConnectionError(f"{self._place} is gone: another job has met in its place")
