"""The contents of a run's directory, read without the product: an independent witness."""

from __future__ import annotations

import json
import random
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from lab.faults import changes

from .state import Digests, Point, digests_of_file


@dataclass(frozen=True)
class Held:
    """One committed checkpoint."""

    point: Point
    directory: str

    def digests(self, run: Path) -> Digests:
        found: Digests = {}
        for file in (run / self.directory).glob("*.safetensors"):
            found |= digests_of_file(file)
        return found

    def has_linked_file(self, run: Path) -> bool:
        """One that an earlier checkpoint wrote; that one may be gone."""
        manifest = json.loads((run / self.directory / "manifest.json").read_text())
        return any("origin" in file for file in manifest["files"])


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
DAMAGES = {
    "flip": changes.bit, "truncate": changes.cut_anywhere, "zero page": changes.zeroed_page,
}  # fmt: skip


def damage(path: Path, how: str, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(DAMAGES[how](data, b"", draw).apply(data))
