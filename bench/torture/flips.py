"""One bit flipped anywhere in what a save has written; then a load."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import numpy

from bench.torture.outcomes import of_flip
from bench.torture.subject import Subject, Trial, Trials, described

CHECK_EVERY = 50  # trials; an undamaged copy in between


@dataclass(frozen=True)
class Flip:
    """Where; `file` below the run."""

    file: str
    offset: int
    bit: int


def written_by_newer(older: dict[str, str], newer: dict[str, str]) -> list[str]:
    """The files that the second save has made or changed."""
    return sorted(name for name, sha in newer.items() if older.get(name) != sha)


def draw(directory: Path, files: list[str], random: Random) -> Flip:
    """Every byte of these files is as likely as every other."""
    sizes = [(directory / name).stat().st_size for name in files]
    (index,) = random.choices(range(len(files)), weights=sizes)
    return Flip(files[index], random.randrange(sizes[index]), random.randrange(8))


def apply(directory: Path, flip: Flip) -> None:
    with (directory / flip.file).open("r+b") as file:
        file.seek(flip.offset)
        byte = file.read(1)[0]
        file.seek(flip.offset)
        file.write(bytes([byte ^ (1 << flip.bit)]))


def differing_bits(first: Path, second: Path) -> int:
    one, other = (numpy.fromfile(path, numpy.uint8) for path in (first, second))
    if one.size != other.size:
        return 8 * abs(one.size - other.size)
    return int(numpy.unpackbits(one[one != other] ^ other[one != other]).sum())


def run(subject: Subject, count: int) -> Trials:
    directory, pristine = subject.place / "run", subject.place / "pristine"
    older, newer = (event["files"] for event in subject.save(directory))
    files = [name for name in written_by_newer(older, newer) if (directory / name).is_file()]
    shutil.copytree(directory, pristine, symlinks=True)
    try:
        for index in range(count):
            if index % CHECK_EVERY == 0:
                copy_and_check(subject, pristine, directory)
            yield one(subject, pristine, directory, files)
        copy_and_check(subject, pristine, directory)
    finally:
        shutil.rmtree(pristine)


def one(subject: Subject, pristine: Path, directory: Path, files: list[str]) -> Trial:
    copy(pristine, directory)
    flip = draw(directory, files, subject.random)
    apply(directory, flip)
    changed = differing_bits(pristine / flip.file, directory / flip.file)
    if changed != 1:
        raise OSError(f"{changed} bits of {flip.file} have changed, not one")
    loaded = subject.load(directory)
    return Trial(of_flip(loaded), asdict(flip) | described(loaded, None))


def copy(pristine: Path, directory: Path) -> None:
    shutil.rmtree(directory)
    shutil.copytree(pristine, directory, symlinks=True)


def copy_and_check(subject: Subject, pristine: Path, directory: Path) -> None:
    copy(pristine, directory)
    subject.check_undamaged(directory)
