"""Damage done to what a save has written, at random places; then a load."""

import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from lab.faults.changes import KINDS, Change, Draw
from lab.faults.state import of_damage
from lab.faults.subject import Subject, Trial, Trials, described

CHECK_EVERY = 50  # trials; an undamaged copy in between
DRAWS_MAX = 1000  # of a place, until the damage there changes something
STEP_OR_KEY = re.compile(r"[0-9a-f-]{16,}|\d+")  # what differs in the names of two saves


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
