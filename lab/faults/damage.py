"""Damage done to what a save has written, at random places; then a load."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from lab.faults.state import of_damage
from lab.faults.subject import Subject, Trial, Trials, described

CHECK_EVERY = 50  # trials; an undamaged copy in between
PAGE_BYTES = 4096
DRAWS_MAX = 1000  # of a place, until the damage there changes something
STEP_OR_KEY = re.compile(r"[0-9a-f-]{16,}|\d+")  # what differs in the names of two saves


@dataclass(frozen=True)
class Change:
    """What becomes of one file."""

    writes: tuple[tuple[int, bytes], ...] = ()  # offset, bytes
    size: int | None = None  # cut to so many bytes
    about: dict[str, int] = field(default_factory=dict)

    def apply(self, whole: bytes) -> bytes:
        found = bytearray(whole)
        for offset, data in self.writes:
            found[offset : offset + len(data)] = data
        return bytes(found[: self.size])


Draw = Callable[[bytes, bytes, Random], Change | None]  # of the file, and of its older version


def bit(whole: bytes, _: bytes, random: Random) -> Change:
    offset, index = random.randrange(len(whole)), random.randrange(8)
    changed = bytes([whole[offset] ^ (1 << index)])
    return Change(((offset, changed),), about={"offset": offset, "bit": index})


def byte(whole: bytes, _: bytes, random: Random) -> Change:
    offset = random.randrange(len(whole))
    changed = bytes([whole[offset] ^ random.randrange(1, 256)])
    return Change(((offset, changed),), about={"offset": offset})


def zeroed_page(whole: bytes, _: bytes, random: Random) -> Change:
    offset = random.randrange(0, len(whole), PAGE_BYTES)
    length = min(PAGE_BYTES, len(whole) - offset)
    return Change(((offset, bytes(length)),), about={"offset": offset})


def cut_at_99(whole: bytes, _: bytes, random: Random) -> Change:
    size = len(whole) * 99 // 100
    return Change(size=size, about={"size": size})


def cut_anywhere(whole: bytes, _: bytes, random: Random) -> Change:
    size = random.randrange(len(whole))
    return Change(size=size, about={"size": size})


def swapped_pages(whole: bytes, _: bytes, random: Random) -> Change | None:
    count = len(whole) // PAGE_BYTES
    if count < 2:
        return None
    first, second = (PAGE_BYTES * index for index in random.sample(range(count), 2))
    pages = ((first, page(whole, second)), (second, page(whole, first)))
    return Change(pages, about={"offset": first, "other": second})


def stale_page(whole: bytes, older: bytes, random: Random) -> Change | None:
    """As a device leaves it that has dropped a write."""
    count = min(len(whole), len(older)) // PAGE_BYTES
    if count == 0:
        return None
    offset = PAGE_BYTES * random.randrange(count)
    return Change(((offset, page(older, offset)),), about={"offset": offset})


def page(whole: bytes, offset: int) -> bytes:
    return whole[offset : offset + PAGE_BYTES]


BIT = "one bit flipped"
KINDS: dict[str, Draw] = {
    BIT: bit,
    "one byte changed": byte,
    "a page of 4 KiB zeroed": zeroed_page,
    "cut off at 99 %": cut_at_99,
    "cut off anywhere": cut_anywhere,
    "two pages of 4 KiB swapped": swapped_pages,
    "a stale page of 4 KiB": stale_page,
}


class NoPlaceError(Exception):
    """Nothing that was written can be damaged in this way."""


@dataclass(frozen=True)
class Damage:
    """To `file` below the run."""

    file: str
    change: Change


def written_by_newer(older: dict[str, str], newer: dict[str, str]) -> list[str]:
    """The files that the second save has made or changed; in one order, whatever their keys."""
    found = (name for name, sha in newer.items() if older.get(name) != sha)
    return sorted(found, key=lambda name: (alike(name), name))


def alike(name: str) -> str:
    """The same for the same part of any save."""
    return STEP_OR_KEY.sub("#", name)


def older_versions(older: Path, newer: Path, names: list[str]) -> dict[str, Path]:
    """The older file of the same name, else the one whose name says the same of an older step.

    Of several that say the same, as those with random names do, the largest goes with the largest.
    Else the largest of all: what a dropped write leaves behind can be of any file.
    """
    known: dict[str, list[Path]] = defaultdict(list)
    files = largest_first(path for path in older.rglob("*") if path.is_file())
    found = {name: older / name for name in names if (older / name).is_file()}
    for path in files:
        if path not in found.values():
            known[alike(str(path.relative_to(older)))].append(path)
    for path in largest_first(newer / name for name in names):
        name = str(path.relative_to(newer))
        candidates = known[alike(name)]
        if name not in found and files:
            found[name] = candidates.pop(0) if candidates else files[0]
    return found


def largest_first(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda one: (-one.lstat().st_size, str(one)))


@dataclass(frozen=True)
class Specimen:
    """A newer checkpoint beside an older one, undamaged, and a copy to be damaged."""

    subject: Subject
    files: dict[str, bytes]  # that the newer save has written
    older: dict[str, bytes]  # of those that have an older version
    pristine: Path
    directory: Path

    def trial(self, kind: str, random: Random) -> Trial:
        """NoPlaceError where no place is found."""
        self.renew()
        damage = self.draw(KINDS[kind], random)
        path = self.directory / damage.file
        path.write_bytes(damage.change.apply(self.files[damage.file]))
        if path.read_bytes() == self.files[damage.file]:
            raise OSError(f"{damage.file} has not changed")
        loaded = self.subject.load(self.directory)
        about = {"file": damage.file, **damage.change.about}
        return Trial(of_damage(loaded), about | described(loaded, None))

    def draw(self, kind: Draw, random: Random) -> Damage:
        """Every byte of these files is as likely as every other."""
        names = list(self.files)
        sizes = [len(whole) for whole in self.files.values()]
        for _ in range(DRAWS_MAX):
            (name,) = random.choices(names, weights=sizes)
            whole = self.files[name]
            change = kind(whole, self.older.get(name, b""), random)
            if change is not None and change.apply(whole) != whole:
                return Damage(name, change)
        raise NoPlaceError("no such damage changes a byte of it")

    def renew(self) -> None:
        shutil.rmtree(self.directory)
        shutil.copytree(self.pristine, self.directory, symlinks=True)

    def check(self) -> None:
        self.renew()
        self.subject.check_undamaged(self.directory)


@contextmanager
def specimen(subject: Subject) -> Iterator[Specimen]:
    """Both checkpoints, saved by one process."""
    directory, pristine, copied = (subject.place / name for name in ("run", "pristine", "older"))
    older, newer = (
        event["files"] for event in subject.save(directory, listed=True, copied=str(copied))
    )
    files = [name for name in written_by_newer(older, newer) if (directory / name).is_file()]
    versions = older_versions(copied, directory, files)
    shutil.copytree(directory, pristine, symlinks=True)
    contents = {name: (directory / name).read_bytes() for name in files}
    try:
        yield Specimen(
            subject,
            contents,
            {name: path.read_bytes() for name, path in versions.items()},
            pristine,
            directory,
        )
    finally:
        for path in (pristine, copied):
            shutil.rmtree(path)


def run(subject: Subject, kind: str, count: int) -> Trials:
    with specimen(subject) as one:
        for index in range(count):
            if index % CHECK_EVERY == 0:
                one.check()
            yield one.trial(kind, subject.random)
        one.check()
