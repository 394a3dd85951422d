"""A small file system of our own that can be full: ext4 on a loop device, seen by us alone."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

DISK_BYTES = 96 << 20
_NEW_MOUNTS = 0x20000  # CLONE_NEWNS


class SmallDisk:
    """Mounted in a namespace of this process and its children, and gone with them."""

    def __init__(self, place: Path) -> None:
        self.path = place / "disk"
        self._ballast = self.path / "ballast"

    def mount(self) -> str:
        """Mounts it; the reason if that fails, "" if it is mounted."""
        image = self.path.with_suffix(".img")
        if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
            return "it takes root and mkfs.ext4"
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        self.path.mkdir()
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS) != 0:
            return f"unshare: {os.strerror(ctypes.get_errno())}"
        for command in (
            ["mount", "--make-rprivate", "/"],
            ["mkfs.ext4", "-q", str(image)],
            ["mount", "-o", "loop", str(image), str(self.path)],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return f"{command[0]}: {done.stderr.strip()}"
        return ""

    def unmount(self) -> None:
        """Its memory goes with the last process that uses it."""
        subprocess.run(["umount", "--lazy", str(self.path)], check=False)

    def fill(self) -> None:
        """Takes whatever is free now."""
        with self._ballast.open("ab") as file:
            free = os.statvfs(self.path)
            size = file.seek(0, os.SEEK_END)
            if room := free.f_bavail * free.f_frsize:
                _allocate(file.fileno(), size, room)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


def _allocate(descriptor: int, size: int, room: int) -> None:
    while room >= 4096:
        try:
            return os.posix_fallocate(descriptor, size, room)
        except OSError:
            room //= 2  # its own tables take some, and others write
