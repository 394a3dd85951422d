"""What a save costs by itself: each writer in a process of its own, in shuffled rounds."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lab.measure import alone as jobs
from lab.measure.case import Case, LeftOutError, Place, Plan, ToolError, refusing
from lab.measure.machine import has_direct_io
from lab.measure.program import FRAMEWORKS, OWN, PEERS, ask, python
from lab.measure.row import Row
from lab.networks.layout import Layout, read
from lab.writers.menu import Entry
from lab.writers.tried import COMPRESSED, about, chosen, left_out

SECONDS_MAX = 180.0  # of one process; some writers hang on a full disk
BUFFERED = "no file can be opened with O_DIRECT here: DeepFreeze writes through the page cache"
SECONDS_EACH = {  # about, of a process that saves it
    "tiny": {OWN: 3.0, PEERS: 4.5, FRAMEWORKS: 3.5},
    "combo": {OWN: 3.5, PEERS: 5.0, FRAMEWORKS: 4.0},
    "nt3-6k": {OWN: 4.5, PEERS: 5.2, FRAMEWORKS: 4.6},
    "resnet50": {OWN: 6.2, PEERS: 7.2, FRAMEWORKS: 9.3},
}


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    workloads: tuple[str, ...]
    rounds: int
    saves: int  # of each process, after its first


QUICK = Size(("combo",), rounds=1, saves=3)
FULL = Size(("resnet50",), rounds=2, saves=3)
FURTHER = Size(("nt3-6k",), rounds=1, saves=3)  # of the smaller one saves differ less


def layout_of(workload: str, place: Place) -> tuple[Path, Layout]:
    """Made by torch, in a process of its own, once in a study: this one imports no framework."""
    path = place.shared / f"{workload}.layout.json"
    if not path.exists():
        made = place.directory / "layout.json"
        request = {"workload": workload, "layout": str(made)}
        ask(python(OWN), "lab.networks.layouts", request, place.directory)
        made.rename(path)
    return path, read(path)


def measured(entry: Entry, workload: str, size: Size, round_index: int, place: Place) -> list[Row]:
    path, layout = layout_of(workload, place)
    saves = 2 if entry.name in COMPRESSED else size.saves + 1
    seed = place.plan.seed
    checkpoints = place.directory / "checkpoints"
    found = jobs.save_alone(entry, path, checkpoints, seed, saves, SECONDS_MAX)
    if "error" in found:
        raise ToolError(found["error"])
    known = {"tensors": len(layout.tensors), "state_bytes": layout.nbytes}
    first, *later = found["saves"]
    return [
        {**known, **figures(one), "repetition": round_index * size.saves + index,
         **(of_the_process(found, first) if index == 0 else {})}
        for index, one in enumerate(later)
    ]  # fmt: skip


def of_the_process(found: dict[str, Any], first: dict[str, Any]) -> Row:
    return {
        "open_seconds": found["open_seconds"], "first_stall_seconds": first["captured_seconds"]
    }  # fmt: skip


def figures(save: dict[str, Any]) -> Row:
    return {
        "stall_seconds": save["captured_seconds"],
        "committed_seconds": save["committed_seconds"],
        "durable_seconds": save["durable_seconds"],
        "cpu_seconds": save["cpu_seconds"],
        "peak_bytes": save["peak_bytes"],
        "written_bytes": save["written_bytes"],
        "detail": json.dumps({"file_bytes": save["file_bytes"]}),
    }


def interleaved(
    name: str,
    plan: Plan,
    size: Size,
    work: Callable[..., list[Row]],
    seconds: float,
    passed_over: tuple[str, ...] = (),
) -> Iterator[Case]:
    """Every writer once in each round, in an order shuffled anew."""
    for workload in size.workloads:
        for index in range(size.rounds):
            entries = [one for one in chosen(plan.quick) if one.name not in passed_over]
            plan.random(name, workload, index).shuffle(entries)
            for entry in entries:
                yield Case(
                    name,
                    f"{workload}/{entry.name}/{index}",
                    seconds + SECONDS_EACH[workload][entry.environment],
                    about(entry, workload),
                    partial(work, entry, workload, size, index),
                    entry.environment,
                )


def direct(place: Place) -> Iterator[Row]:
    """Said once, for every figure of DeepFreeze beside it."""
    if not has_direct_io(place.directory):
        raise LeftOutError(BUFFERED)
    yield {"verdict": "past the page cache"}


def cases(plan: Plan) -> Iterator[Case]:
    yield Case(
        "cost", "direct I/O", 0.01, {"writer": "df", "title": "DeepFreeze, direct I/O"}, direct
    )
    for size in (QUICK,) if plan.quick else (FULL, FURTHER):
        yield from interleaved("cost", plan, size, measured, 0.0)
    for entry, reason in left_out(plan.quick):
        named = {**about(entry, ""), "synced": None, "checked": None}
        yield Case("cost", f"left out {entry.name}", 0.01, named, refusing(reason))
