"""Processes find each other that know only their ranks, a job's name and a directory.

A rank announces itself by a file with a random number in its name, which it touches as long as it
waits. Rank 0 chooses the files that are being touched, calls a meeting of their numbers, and begins
once each of them has answered. So a dead process is in no meeting. A process of an earlier job may
still wait; jobs have names to keep it out, and no meeting begins if two claim the same rank.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from pathlib import Path

from deepfreeze.ranks.polling import polls

_TOUCH_SECONDS = 0.05
_LOOK_SECONDS = 0.25  # before a meeting is called: long enough for every live rank to touch once
_ALIVE_SECONDS = 2.0  # without a touch; distant disks may need that long
_CALLED = "called.json"  # the numbers that are invited, by rank
_BEGUN = "begun.json"  # the numbers that take part, final
_SIGN = re.compile(r"rank-(\d+)\.([0-9a-f]{8})\.([0-9a-f]{16})")
_MEETING = re.compile(r"meeting-([0-9a-f]{8})\.[0-9a-f]{16}")


def meet(place: Path, job: str, rank: int, world_size: int, timeout_seconds: float) -> Path:
    """The meeting's directory. TimeoutError names the ranks that did not come.

    ValueError if rank 0 has another world size.
    """
    name = hashlib.sha256(job.encode()).hexdigest()[:8]
    sign = _Sign(place, name, rank)
    if rank == 0:
        meeting = _call(place, sign, world_size, timeout_seconds)
        _remove_others(place, name, meeting)
        return meeting
    return _answer(place, sign, world_size, timeout_seconds)


class _Sign:
    """The file by which a rank of a job announces itself."""

    def __init__(self, place: Path, job: str, rank: int) -> None:
        self.job = job
        self.rank = rank
        self.number = secrets.token_hex(8)
        self._path = place / f"rank-{rank}.{job}.{self.number}"
        self._touched = time.monotonic()
        self._path.touch()

    def touch(self) -> None:
        if time.monotonic() - self._touched < _TOUCH_SECONDS:
            return
        self._touched = time.monotonic()
        with contextlib.suppress(FileNotFoundError):  # a meeting has begun
            os.utime(self._path)


class _Signs:
    """The signs of a job that were seen to change, so their ranks live. Does not compare clocks."""

    def __init__(self, place: Path, job: str) -> None:
        self._place = place
        self._job = job
        self._times: dict[tuple[int, str], int] = {}  # of the last touch, by rank and number
        self._changed: dict[tuple[int, str], float] = {}  # when that was seen
        self._look()
        self._changed.clear()  # a process that touched its file before may be dead by now

    def _look(self) -> None:
        for name in os.listdir(self._place):
            found = _SIGN.fullmatch(name)
            if found is None or found[2] != self._job:
                continue
            sign = (int(found[1]), found[3])
            with contextlib.suppress(FileNotFoundError):
                touched = (self._place / name).stat().st_mtime_ns
                if self._times.get(sign) != touched:
                    self._times[sign] = touched
                    self._changed[sign] = time.monotonic()

    def alive(self) -> dict[int, list[str]]:
        """The numbers of each rank; more than one if several processes claim it."""
        self._look()
        found: dict[int, list[str]] = {}
        for (rank, number), seen in self._changed.items():
            if time.monotonic() - seen < _ALIVE_SECONDS:
                found.setdefault(rank, []).append(number)
        return found


def _call(place: Path, sign: _Sign, world_size: int, timeout_seconds: float) -> Path:
    meeting = place / f"meeting-{sign.job}.{sign.number}"
    signs = _Signs(place, sign.job)
    meeting.mkdir()
    called: list[str] = []
    why = "the time is too short to look for them"
    may_call = time.monotonic() + _LOOK_SECONDS
    for _ in polls(timeout_seconds):
        sign.touch()
        alive = signs.alive()
        if time.monotonic() < may_call:
            continue
        alive[0] = sorted({*alive.get(0, []), sign.number})
        why = _obstacle(alive, world_size)
        if why:
            continue
        wanted = [alive[rank][0] for rank in range(world_size)]
        if wanted != called:
            called = wanted
            _write(meeting / _CALLED, called)
        silent = [rank for rank in range(1, world_size) if not (meeting / called[rank]).exists()]
        if not silent:
            _write(meeting / _BEGUN, called)
            return meeting
        why = f"ranks {silent} of {world_size} have not answered"
    shutil.rmtree(meeting, ignore_errors=True)
    raise TimeoutError(f"ranks: {why}, in {place} within {timeout_seconds:g} s")


def _obstacle(alive: dict[int, list[str]], world_size: int) -> str:
    """Why no meeting can be called now; "" if it can."""
    several = [rank for rank in range(world_size) if len(alive.get(rank, [])) > 1]
    if several:
        return (
            f"ranks {several} have several processes (jobs that share a directory need names: "
            "DirectoryRanks(job=))"
        )
    missing = [rank for rank in range(world_size) if rank not in alive]
    return f"ranks {missing} of {world_size} did not come" if missing else ""


def _answer(place: Path, sign: _Sign, world_size: int, timeout_seconds: float) -> Path:
    for _ in polls(timeout_seconds):
        sign.touch()
        for meeting in _meetings(place, sign.job):
            if _is_for(meeting / _BEGUN, sign, world_size):
                return meeting
            if _is_for(meeting / _CALLED, sign, world_size):
                with contextlib.suppress(FileNotFoundError):
                    (meeting / sign.number).touch()
    raise TimeoutError(
        f"ranks: rank 0 has not called rank {sign.rank} to a meeting in {place} "
        f"within {timeout_seconds:g} s"
    )


def _meetings(place: Path, job: str) -> list[Path]:
    found = ((_MEETING.fullmatch(name), name) for name in os.listdir(place))
    return [place / name for match, name in found if match is not None and match[1] == job]


def _is_for(path: Path, sign: _Sign, world_size: int) -> bool:
    try:
        numbers = json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    if not isinstance(numbers, list) or numbers[sign.rank : sign.rank + 1] != [sign.number]:
        return False
    if len(numbers) != world_size:
        raise ValueError(
            f"ranks: rank 0 says that there are {len(numbers)}, rank {sign.rank} that there are "
            f"{world_size}, in {path.parent.parent}"
        )
    return True


def _write(path: Path, numbers: list[str]) -> None:
    unfinished = path.with_suffix(".tmp")
    try:
        unfinished.write_text(json.dumps(numbers))
        os.replace(unfinished, path)
    except FileNotFoundError as cause:
        raise ConnectionError(f"ranks: {path.parent} is gone: another job has met") from cause


def _remove_others(place: Path, job: str, meeting: Path) -> None:
    """Removes the files of earlier jobs of that name, and all signs. A failure does no harm."""
    for old in _meetings(place, job):
        if old != meeting:
            shutil.rmtree(old, ignore_errors=True)
    for name in os.listdir(place):
        found = _SIGN.fullmatch(name)
        if found is not None and found[2] == job:
            with contextlib.suppress(OSError):
                (place / name).unlink()
