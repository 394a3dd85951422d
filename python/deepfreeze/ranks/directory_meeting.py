"""How processes that know no more than their ranks and a directory find each other.

A rank says that it is there by a file with a number of its own, which it touches as long as it
waits. Rank 0 takes the newest of each and calls a meeting of these numbers; each rank that finds
its own answers; once all have, rank 0 begins. So what an earlier job has left, or a process of it
that still runs, is in no meeting of this one.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import time
from pathlib import Path

from deepfreeze.ranks.polling import polls

_TOUCH_SECONDS = 1.0
_CALLED = "called.json"  # the numbers that are wanted, by rank
_BEGUN = "begun.json"  # the same, for good


def meet(place: Path, rank: int, world_size: int, timeout_seconds: float) -> Path:
    """The meeting's directory. TimeoutError names who did not come."""
    sign = _Sign(place, rank)
    if rank == 0:
        meeting = _call(place, sign, world_size, timeout_seconds)
        _remove_others(place, meeting)
        return meeting
    return _answer(place, sign, timeout_seconds)


class _Sign:
    """That a rank is there."""

    def __init__(self, place: Path, rank: int) -> None:
        self.rank = rank
        self.number = secrets.token_hex(8)
        self._path = place / f"rank-{rank}.{self.number}"
        self._touched = 0.0
        self.touch()

    def touch(self) -> None:
        if time.monotonic() - self._touched < _TOUCH_SECONDS:
            return
        self._touched = time.monotonic()
        self._path.touch()


def _call(place: Path, sign: _Sign, world_size: int, timeout_seconds: float) -> Path:
    meeting = place / f"meeting-{sign.number}"
    meeting.mkdir()
    called: list[str] = []
    numbers: dict[int, str] = {}
    for _ in polls(timeout_seconds):
        sign.touch()
        numbers = {**_newest(place), 0: sign.number}
        wanted = [numbers[rank] for rank in range(world_size) if rank in numbers]
        if len(wanted) < world_size:
            continue
        if wanted != called:
            called = wanted
            _write(meeting / _CALLED, called)
        if all((meeting / number).exists() for number in called[1:]):
            _write(meeting / _BEGUN, called)
            return meeting
    missing = [rank for rank in range(1, world_size) if rank not in numbers]
    shutil.rmtree(meeting, ignore_errors=True)
    raise TimeoutError(
        f"ranks: {missing or 'some'} of {world_size} did not come to {place} within "
        f"{timeout_seconds:g} s"
    )


def _answer(place: Path, sign: _Sign, timeout_seconds: float) -> Path:
    for _ in polls(timeout_seconds):
        sign.touch()
        for meeting in place.glob("meeting-*"):
            if _is_for(meeting / _BEGUN, sign):
                return meeting
            if _is_for(meeting / _CALLED, sign):
                with contextlib.suppress(FileNotFoundError):
                    (meeting / sign.number).touch()
    raise TimeoutError(
        f"ranks: rank 0 has called rank {sign.rank} to no meeting in {place} within "
        f"{timeout_seconds:g} s"
    )


def _newest(place: Path) -> dict[int, str]:
    """The number of each rank that was touched last."""
    found: dict[int, tuple[int, str]] = {}
    for path in place.glob("rank-*.*"):
        rank, _, number = path.name.removeprefix("rank-").partition(".")
        with contextlib.suppress(FileNotFoundError, ValueError):
            seen = (path.stat().st_mtime_ns, number)
            found[int(rank)] = max(seen, found.get(int(rank), seen))
    return {rank: number for rank, (_, number) in found.items()}


def _is_for(path: Path, sign: _Sign) -> bool:
    try:
        numbers = json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    return sign.rank < len(numbers) and numbers[sign.rank] == sign.number


def _write(path: Path, numbers: list[str]) -> None:
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(numbers))
    os.replace(unfinished, path)


def _remove_others(place: Path, meeting: Path) -> None:
    """What earlier jobs left, and the signs of this one."""
    for path in [*place.glob("rank-*.*"), *place.glob("meeting-*")]:
        if path.is_dir() and path != meeting:
            shutil.rmtree(path, ignore_errors=True)
        elif path.is_file():
            path.unlink(missing_ok=True)
