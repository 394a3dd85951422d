"""A small file system of our own that can be full: ext4 on a loop device, seen by us alone."""

from __future__ import annotations

import os
from pathlib import Path

from lab.faults.disk import EXT4, Disk, MissingError, fill, keep_mounts_to_ourselves

DISK_BYTES = 96 << 20


class SmallDisk:
    """Mounted in a namespace of this process and its children, and gone with them."""

    def __init__(self, place: Path) -> None:
        self.path = place / "disk"
        self._ballast = self.path / "ballast"
        self._disk: Disk | None = None

    def mount(self) -> str:
        """Mounts it; the reason if that fails, "" if it is mounted."""
        if os.geteuid() != 0:
            return "it takes root and mkfs.ext4"
        self.path.mkdir()
        try:
            keep_mounts_to_ourselves()
            self._disk = Disk(EXT4, self.path, DISK_BYTES)
            self._disk.make()
        except (MissingError, OSError) as error:
            return str(error)
        return ""

    def unmount(self) -> None:
        """Its memory goes with the last process that uses it."""
        if self._disk is not None:
            self._disk.close()

    def fill(self) -> None:
        """Takes whatever is free now."""
        fill(self._ballast, 0)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)
