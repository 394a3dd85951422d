"""The common parts of trials on a disk: the counts, and the checks at the end."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from .block_disk import BlockDisk
from .trainer import call, faults_of


@dataclass
class Tally:
    """The numbers of trials, and the broken promises."""

    tried: dict[str, int] = field(default_factory=dict)
    longest_save: dict[str, float] = field(default_factory=dict)  # seconds, by scenario
    faults: list[str] = field(default_factory=list)

    def add(self, name: str, count: int = 1) -> None:
        self.tried[name] = self.tried.get(name, 0) + count

    def time(self, name: str, seconds: float) -> None:
        self.longest_save[name] = max(self.longest_save.get(name, 0), seconds)


Scenario = Callable[[BlockDisk, random.Random, Tally], list[str]]


def remounted_faults(disk: BlockDisk, acknowledged: int) -> list[str]:
    """The faults after a repair; `acknowledged`: the newest step that was durable."""
    disk.detach()
    disk.attach()
    found = faults_of(disk.path / "run", acknowledged)
    again = call("save", disk.path / "run", "1")
    if not again.steps("durable"):
        found.append(f"the next save fails: {again.lines}")
    return found
