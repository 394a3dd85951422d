"""A farther tier's directory on a disk of our own, and the ways in which it can be away."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

from lab.faults.disk import EXT4, MNT_DETACH, Disk, MissingError, call, fill, libc

from .block_disk import NotHereError

DISK_BYTES = 96 << 20
MS_RDONLY, MS_REMOUNT = 1, 32
BUSY_SECONDS_MAX = 30.0  # a file that is being written keeps its disk from being made read-only


class FarPlace:
    """ext4 in memory, mounted at `place`. NotHereError if that is not permitted."""

    def __init__(self, place: Path) -> None:
        self._mounted = place
        self._mounted.mkdir()
        self.path = self._mounted / "run"
        self._away = self._mounted / "away"
        self._ballast = self._mounted / "ballast"
        try:
            self._disk = Disk(EXT4, self._mounted, DISK_BYTES)
            self._disk.make()
        except (MissingError, OSError) as cause:
            raise NotHereError(str(cause)) from cause

    def unmount(self) -> None:
        """Processes that have it open keep it, as with a lazy unmount."""
        call("unmount", libc.umount2(os.fsencode(self._mounted), MNT_DETACH))

    def mount(self) -> None:
        self._disk.mount()

    def move(self) -> None:
        self.path.rename(self._away)

    def move_back(self) -> None:
        self._away.rename(self.path)

    def put_a_file_there(self) -> None:
        self.move()
        self.path.touch()

    def take_the_file_away(self) -> None:
        self.path.unlink()
        self.move_back()

    def forbid_writing(self) -> None:
        self._remount(MS_RDONLY)

    def allow_writing(self) -> None:
        self._remount(0)

    def _remount(self, flags: int) -> None:
        until = time.monotonic() + BUSY_SECONDS_MAX
        while libc.mount(None, os.fsencode(self._mounted), None, MS_REMOUNT | flags, None) != 0:
            if ctypes.get_errno() != errno.EBUSY or time.monotonic() > until:
                call("remount", -1)
            time.sleep(0.001)

    def fill(self) -> None:
        """To the last block, also of those that only root may take."""
        fill(self._ballast, -DISK_BYTES)

    def stay_full(self) -> None:
        """Takes the space that has become free; nothing if it is not full on purpose."""
        if self._ballast.exists():
            self.fill()

    def free(self) -> None:
        self._ballast.unlink()

    def commits(self) -> dict[int, int]:
        """The time of each manifest, in nanoseconds, by step; none while it is away."""
        found = {}
        with contextlib.suppress(OSError):
            for attempt in self.path.glob("step-*"):
                with contextlib.suppress(OSError):
                    written = (attempt / "manifest.json").stat().st_mtime_ns
                    found[int(attempt.name.split("-")[1])] = written
        return found

    def close(self) -> None:
        self._disk.close()

    def __enter__(self) -> FarPlace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Act = Callable[[FarPlace], None]
# How it goes away, and how it comes back.
WAYS: dict[str, tuple[Act, Act]] = {
    "unmounted": (FarPlace.unmount, FarPlace.mount),
    "moved": (FarPlace.move, FarPlace.move_back),
    "a file in its place": (FarPlace.put_a_file_there, FarPlace.take_the_file_away),
    "read-only": (FarPlace.forbid_writing, FarPlace.allow_writing),
    "full": (FarPlace.fill, FarPlace.free),
}
