"""A file system of its own on a loop device in memory, whose power can be cut. Needs root."""

import ctypes
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from lab.measure.files import files_in

DEVICE_BYTES = 512 << 20  # XFS takes no less than 300 MB
UNMOUNT_SECONDS_MAX = 30.0
UNMOUNT_PAUSE_SECONDS = 0.001
TRIES = 20  # others look for a free device too

FS_IOC_SHUTDOWN = 0x8004_587D  # _IOR('X', 125, __u32)
LOOP_CTL_GET_FREE, LOOP_CONFIGURE, LO_FLAGS_AUTOCLEAR = 0x4C82, 0x4C0A, 4
LOOP_CONFIG = struct.Struct("=2I 5Q 4I 160x 2Q 8Q")  # fd, block size, loop_info64, reserved
CLONE_NEWNS, MS_PRIVATE_REC, MNT_DETACH = 0x0002_0000, (1 << 18) | (1 << 14), 2
MISSING = {
    errno.EPERM,
    errno.EACCES,
    errno.ENOENT,
    errno.ENODEV,
    errno.ENXIO,
    errno.ENOSYS,
    errno.ENOTTY,
    errno.EOPNOTSUPP,
}

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class FileSystem:
    name: str
    options: str  # of mount()
    make: tuple[str, ...]


EXT4 = FileSystem("ext4", "data=ordered", ("mkfs.ext4", "-q", "-F"))
XFS = FileSystem("xfs", "", ("mkfs.xfs", "-q", "-f"))


class Cut(IntEnum):
    """What the device keeps of what was not synced."""

    LOG_FLUSHED = 1  # the journal as it stands: names may be there whose data is not
    LOG_LOST = 2  # only what is in the journal on the device


class MissingError(Exception):
    """This machine has no such thing, or does not let us use it."""


def call(what: str, result: int) -> None:
    """Raises for a failed call of the C library."""
    if result != 0:
        raise refusal(what, ctypes.get_errno())


def refusal(what: str, number: int) -> Exception:
    text = f"{what}: {os.strerror(number)}"
    return MissingError(text) if number in MISSING else OSError(number, text)


def keep_mounts_to_ourselves() -> None:
    """They end with this process and what it starts from now on, however that ends."""
    call("unshare", libc.unshare(CLONE_NEWNS))
    call("mount private", libc.mount(None, b"/", None, MS_PRIVATE_REC, None))


class Disk:
    """Owns a mount at `place`, and the device below it."""

    def __init__(self, file_system: FileSystem, place: Path, nbytes: int = DEVICE_BYTES) -> None:
        self._file_system = file_system
        self.place = place
        self._memory = os.memfd_create("torture")
        os.truncate(self._memory, nbytes)
        self._device, self._name = attach(self._memory)

    def make(self) -> None:
        command = [*self._file_system.make, self._name]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except FileNotFoundError:
            raise MissingError(f"{command[0]} is not installed") from None
        self.mount()

    def mount(self) -> None:
        one = self._file_system
        words = (one.name.encode(), 0, one.options.encode())
        result = libc.mount(self._name.encode(), os.fsencode(self.place), *words)
        call(f"mount as {one.name}", result)

    def unmount(self) -> None:
        """What a killed process had in flight keeps its files for a moment."""
        until = time.monotonic() + UNMOUNT_SECONDS_MAX
        while libc.umount2(os.fsencode(self.place), 0) != 0:
            if ctypes.get_errno() != errno.EBUSY or time.monotonic() > until:
                call("unmount", -1)
            time.sleep(UNMOUNT_PAUSE_SECONDS)

    def cut_power(self, cut: Cut) -> None:
        """From now on nothing reaches the device, and every write and sync fails."""
        root = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(root, FS_IOC_SHUTDOWN, struct.pack("=I", cut))
        except OSError as error:
            raise refusal("shut down", error.errno or 0) from None
        finally:
            os.close(root)

    def close(self) -> None:
        """Mounted or not, for an interrupt may come anywhere. The last user detaches the device."""
        libc.umount2(os.fsencode(self.place), MNT_DETACH)
        os.close(self._device)
        os.close(self._memory)


def attach(memory: int) -> tuple[int, str]:
    """A free loop device with `memory` behind it, and its name."""
    try:
        control = os.open("/dev/loop-control", os.O_RDWR)
    except OSError as error:
        raise MissingError(f"/dev/loop-control: {error.strerror}") from None
    try:
        for _ in range(TRIES):
            name = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
            with suppress(OSError):
                return configured(name, memory), name
    finally:
        os.close(control)
    raise MissingError("no loop device is free")


def configured(name: str, memory: int) -> int:
    device = os.open(name, os.O_RDWR)
    words = (memory, 0, *[0] * 5, 0, 0, 0, LO_FLAGS_AUTOCLEAR, *[0] * 10)
    try:
        fcntl.ioctl(device, LOOP_CONFIGURE, LOOP_CONFIG.pack(*words))
    except OSError:
        os.close(device)
        raise
    return device


def missing(file_system: FileSystem, place: Path) -> str:
    """Why there can be no power cuts of this file system; empty where all works."""
    try:
        with disk(file_system, place) as one:
            one.cut_power(Cut.LOG_FLUSHED)
            one.unmount()
            one.mount()
    except MissingError as error:
        return str(error)
    return ""


@contextmanager
def disk(file_system: FileSystem, place: Path) -> Iterator[Disk]:
    """Made and mounted; gone at the end, whatever happens."""
    place.mkdir(exist_ok=True)
    made = Disk(file_system, place)
    try:
        made.make()
        yield made
    finally:
        made.close()
        place.rmdir()


# A disk that others have filled, so that a save runs out of space in its middle.


FICLONE = 0x4004_9409  # _IOW(0x94, 9, int)
SHARE = 0.5  # of the bytes that are there already: the room for the next save
STEP_BYTES = 16 << 10


@contextmanager
def crowded(directory: Path) -> Iterator[None]:
    """On XFS. A file in `directory` that is overwritten frees no space: others share it."""
    others = directory.parent / "others"
    others.mkdir()
    try:
        files = list(files_in(directory))
        for index, path in enumerate(files):
            clone(path, others / str(index))
        fill(others / "ballast", int(SHARE * sum(path.stat().st_size for path in files)))
        yield
    finally:
        shutil.rmtree(others)


def clone(path: Path, to: Path) -> None:
    """The same blocks under another name: a backup, a snapshot."""
    with path.open("rb") as source, to.open("wb") as target:
        fcntl.ioctl(target, FICLONE, source.fileno())


def fill(path: Path, left: int) -> None:
    """All but `left` bytes of the disk, beside those that the file has already."""
    with path.open("ab") as file:
        size = max(0, free(path) - left)
        while size > 0 and free(path) > left:
            size = taken(file.fileno(), size)
        os.fsync(file.fileno())


def taken(file: int, size: int) -> int:
    """Takes `size` bytes at the end; returns how many to take next, fewer where there are none."""
    try:
        os.posix_fallocate(file, os.fstat(file).st_size, size)
    except OSError:
        return size // 2
    return STEP_BYTES


def free(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
