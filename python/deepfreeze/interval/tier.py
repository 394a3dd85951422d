"""df.tier(): a farther place on which checkpoints of a run are kept."""

from __future__ import annotations

import os
from dataclasses import dataclass

from deepfreeze.base.arguments import absolute
from deepfreeze.interval.policy import Keep
from deepfreeze.interval.sizes import bytes_per_second_of

# Path, every, rules of keep (last, every, best), bytes per second.
TierForm = tuple[str, int | None, int | None, int | None, tuple[str, str, int] | None, int]


@dataclass(frozen=True)
class Tier:
    """One farther tier, from df.tier()."""

    path: str
    every: int | None
    keep: Keep
    bytes_per_second: int  # 0: no limit
    close_seconds: float  # how long close() waits for it

    def form(self) -> TierForm:
        """The tier as the native engine takes it."""
        keep = self.keep
        rate = self.bytes_per_second
        return (self.path, self.every, keep.last, keep.every, keep.best, rate)


def tier(
    path: str | os.PathLike[str],
    *,
    every: int | None = None,
    keep: Keep | None = None,
    rate: str | float | None = None,
    close_seconds: float = 600.0,
) -> Tier:
    """A directory to which checkpoints are copied behind training, for example on a shared disk.

    path: The directory; it is created if it does not exist. It holds the same run, and can be
        opened by itself.
    every: Only steps that are multiples of it are copied; the default is each that is saved.
    keep: Which checkpoints stay there, from df.keep(); the default is all.
    rate: At most so many bytes per second: a number, or a text such as "500MB/s".
    close_seconds: How long close() waits for the copies that are still on their way; the longest of
        all tiers counts.

    ValueError for an `every` below 1 or a rate that is not understood.
    """
    if every is not None and every < 1:
        raise ValueError(f"tier {os.fspath(path)}: every={every} is no number of steps")
    rules = keep or Keep(None, None, None)
    return Tier(os.fspath(absolute(path)), every, rules, bytes_per_second_of(rate), close_seconds)
