"""Damage to the newest step of a run that lies on three tiers, for tier_faults."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import deepfreeze as df
from lab.faults.changes import bit, cut_anywhere

from .detection import other_state, state_at
from .stored_file import read_stored_file

TIERS = ("near", "far", "farther")
STEPS = (1, 2, 3, 4)  # the first two in generation 1, the others in generation 2
NEWEST, BEFORE = STEPS[-1], STEPS[-2]
FLIPPED, MISSING, CUT, OTHER = "bit flipped", "missing", "cut off", "another step's"
SECONDS = 60.0  # for waits that must not hang

Files: TypeAlias = dict[str, bytes]  # by path within a tier
Damage: TypeAlias = tuple[str, str]  # its part and its kind


@dataclass(frozen=True)
class Fault:
    """The bytes that a file has instead of its own; none if it is missing."""

    part: str
    kind: str
    file: str  # within a tier
    content: bytes | None
    offset: int = 0  # of a flipped bit

    def __str__(self) -> str:
        return f"{self.kind} {self.part} ({self.file}, {self.offset})"

    def put_on(self, tier: Path) -> None:
        path = tier / self.file
        path.unlink()  # it may be a link to the undamaged one
        if self.content is not None:
            path.write_bytes(self.content)


@dataclass(frozen=True)
class Master:
    """The undamaged run, equal on all tiers."""

    root: Path
    files: Files
    header_bytes: int  # of the newest step's data file
    data: str  # of the newest step, within a tier
    manifest: str
    records: list[str]  # of the run


def files_of(tier: Path) -> Files:
    found = sorted(path for path in tier.rglob("*") if path.is_file())
    return {str(path.relative_to(tier)): path.read_bytes() for path in found}


def opened(first: Path, *farther: Path) -> df.Checkpointer:
    return df.Checkpointer(first, tiers=[df.tier(path) for path in farther])


def make_master(root: Path) -> Master:
    for steps in (STEPS[:2], STEPS[2:]):
        with opened(*(root / tier for tier in TIERS)) as ckpt:
            ckpt.restore(other_state())
            for step in steps:
                handle = ckpt.save(step, state_at(step))
                assert handle is not None
                handle.wait("local", SECONDS)
            ckpt.drain(SECONDS)
    files = files_of(root / TIERS[0])
    for tier in TIERS:
        assert files_of(root / tier) == files, tier
    (data,) = (name for name in files if is_of(name, NEWEST) and name.endswith(".safetensors"))
    header_bytes = read_stored_file(root / TIERS[0] / data).header_bytes
    records = [name for name in files if "/" not in name]
    return Master(root, files, header_bytes, data, f"{Path(data).parent}/manifest.json", records)


def is_of(name: str, step: int) -> bool:
    return name.startswith(f"step-{step:012}-")


def draw_fault(master: Master, draw: random.Random, damages: Sequence[Damage]) -> Fault:
    """One that changes a byte."""
    while True:
        fault = damage(master, *draw.choice(damages), draw)
        if fault is not None and fault.content != master.files[fault.file]:
            return fault


def damage(master: Master, part: str, kind: str, draw: random.Random) -> Fault | None:
    """None if there is no such damage of this part."""
    file = {"manifest": master.manifest, "record": draw.choice(master.records)}.get(
        part, master.data
    )
    whole = master.files[file]
    if kind == MISSING:
        return Fault(part, kind, file, None)
    if kind == OTHER:
        others = [name for name in master.files if name != file and alike(name) == alike(file)]
        return Fault(part, kind, file, master.files[draw.choice(others)]) if others else None
    begin = master.header_bytes if part == "data" else 0
    end = master.header_bytes if part == "header" else len(whole)
    change = (bit if kind == FLIPPED else cut_anywhere)(whole[begin:end], b"", draw)
    damaged = whole[:begin] + change.apply(whole[begin:end])
    if kind == FLIPPED:
        damaged += whole[end:]
    return Fault(part, kind, file, damaged, change.about.get("offset", 0))


def alike(name: str) -> str:
    """The same for the same file of each step, and for each claim."""
    return name.partition("/")[2] or name.partition("-")[0]


def copy_of(master: Master, target: Path) -> list[Path]:
    """Hard links: the engine never writes into a file twice."""
    shutil.copytree(master.root, target, copy_function=os.link)
    return [target / tier for tier in TIERS]
