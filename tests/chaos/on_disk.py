"""The contents of a run's directory, read without the product: an independent witness."""

from __future__ import annotations

import json
import random
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from .state import Digests, Point, digests_of_file

PAGE_BYTES = 4096


@dataclass(frozen=True)
class Held:
    """One committed checkpoint."""

    point: Point
    directory: str

    def digests(self, run: Path) -> Digests:
        (file,) = (run / self.directory).glob("*.safetensors")
        return digests_of_file(file)


def held(run: Path, damaged: Collection[str] = ()) -> list[Held]:
    """All committed checkpoints but those damaged ones, newest first. Nobody may be writing."""
    found = []
    for path in run.glob("step-*/manifest.json"):
        if path.parent.name in damaged:
            continue
        manifest = json.loads(path.read_text())
        if manifest["outcome"] == "committed":
            life = int(manifest["annotations"]["tags"]["life"])
            found.append(Held(Point(life, manifest["step"]), path.parent.name))
    return sorted(found, key=lambda each: each.point, reverse=True)


def used_bytes(path: Path) -> int:
    """The disk blocks of a run without its growing list of claims: a block for every life."""
    return sum(
        each.stat().st_blocks * 512
        for each in path.rglob("*")
        if each.is_file() and not each.name.startswith("generation-")
    )


# Damages to a file that nobody writes. Data is random, so that each changes some byte.
DAMAGES = ("flip", "truncate", "zero page")


def damage(path: Path, how: str, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    place = draw.randrange(len(data))
    if how == "flip":
        data[place] ^= 1 << draw.randrange(8)
    elif how == "truncate":
        del data[place:]
    else:
        first = place - place % PAGE_BYTES
        size = min(PAGE_BYTES, len(data) - first)
        data[first : first + size] = bytes(size)
    path.write_bytes(data)
