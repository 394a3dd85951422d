"""df.tier(): a farther place on which checkpoints of a run are kept."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from deepfreeze.base.arguments import absolute
from deepfreeze.interval.policy import Keep

# Decimal, as disks and networks are sold; binary ones have an "i".
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?b?\s*(?:/\s*s)?\s*", re.IGNORECASE)

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
    return Tier(os.fspath(absolute(path)), every, rules, _bytes_per_second(rate), close_seconds)


def _bytes_per_second(rate: str | float | None) -> int:
    if rate is None:
        return 0
    if isinstance(rate, str):
        found = _RATE.fullmatch(rate)
        if found is None:
            raise ValueError(f'rate="{rate}": not bytes per second, such as 5e8 or "500MB/s"')
        rate = float(found[1]) * _UNITS[(found[2] or "").lower()]
    if not 1 <= rate < 2**63:
        raise ValueError(f"rate={rate}: at least 1 byte per second; None is no limit")
    return int(rate)
