"""Detection: `python -m tests.e2e.detection --flips 2000 [--seed S] [--json]`.

Flips single bits at random places of a run, one at a time, and restores. A restore must give
exactly the values of a committed step: the newest one, or, if the newest was hit, the one before
it, and must say so. `deepfreeze verify --json` must name the damaged file.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import deepfreeze as df
from examples.demo.program import run_program
from examples.digest import tensor_bytes

from .command import announce_seed, conclude, make_parser, progress, scratch
from .stored_file import BLOCK_BYTES, StoredFile, read_stored_file

STEPS = (1, 2, 3, 4)  # the first two in generation 1, the others in generation 2
NEWEST_CHANCE = 0.6  # of the flips in an attempt
WEIGHTS = {"data": 10, "header": 4, "manifest": 3, "run file": 1, "claim": 2}


@dataclass(frozen=True)
class Flip:
    """One bit of one file."""

    kind: str
    step: int  # 0 for files of the run itself
    path: Path  # within the run
    byte: int
    bit: int


@dataclass
class Row:
    """The results of the flips of one kind."""

    flips: int = 0
    hit_newest: int = 0
    fell_back: int = 0  # restored the step before the newest, and said so
    restored_newest: int = 0
    named: int = 0  # `verify` named the damaged file
    harmless: int = 0  # `verify` found the run good, and all values were right
    wrong: int = 0  # a restore gave something else


@dataclass
class Master:
    """The undamaged run."""

    root: Path
    attempts: dict[int, Path]  # by step, within the run
    files: dict[int, StoredFile]


@dataclass
class Result:
    """All rows, and the flips that went wrong."""

    seed: int
    rows: dict[str, Row] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def state_at(step: int) -> dict[str, Any]:
    """The true state of a step: about seven blocks, with tensors that end inside them."""
    generator = torch.Generator().manual_seed(step)
    shapes = ((256, 256), (64, 333), (1000,), (7,), (), (129, 3))
    tensors = {
        f"t{index}": torch.randn(shape, generator=generator) for index, shape in enumerate(shapes)
    }
    tensors["half"] = torch.randn(300, 17, generator=generator).to(torch.bfloat16)
    tensors["count"] = torch.tensor([step], dtype=torch.int64)
    return {"weights": tensors, "notes": {"step": step, "text": f"after step {step}"}}


def other_state() -> dict[str, Any]:
    """Live objects before a restore: the values of no committed step."""
    return state_at(0)


def exact(state: dict[str, Any]) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The content that two states must share to be equal bit for bit."""
    return {key: tensor_bytes(value) for key, value in state["weights"].items()}, state["notes"]


@functools.cache
def truth(step: int) -> tuple[dict[str, bytes], dict[str, Any]]:
    return exact(state_at(step))


def make_master(root: Path) -> Master:
    for steps in (STEPS[:2], STEPS[2:]):
        with df.Checkpointer(root) as ckpt:
            state = other_state()
            ckpt.restore(state)
            for step in steps:
                ckpt.save(step, state_at(step))
    attempts = {int(path.name.split("-")[1]): path for path in root.glob("step-*")}
    assert sorted(attempts) == list(STEPS)
    files = {}
    for step, path in attempts.items():
        (data_file,) = path.glob("*.safetensors")
        files[step] = read_stored_file(data_file)
    relative = {step: path.relative_to(root) for step, path in attempts.items()}
    return Master(root, relative, files)


def draw_flip(master: Master, draw: random.Random) -> Flip:
    (kind,) = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))
    if kind in ("run file", "claim"):
        pattern = "deepfreeze.json" if kind == "run file" else "generation-*.json"
        path = draw.choice(sorted(master.root.glob(pattern)))
        step, first, size = 0, 0, path.stat().st_size
    else:
        older = draw.choice(STEPS[:-1])
        step = STEPS[-1] if draw.random() < NEWEST_CHANCE else older
        stored = master.files[step]
        path = stored.path
        first, size = 0, stored.header_bytes
        if kind == "data":
            first, size = stored.header_bytes, stored.data_bytes
        elif kind == "manifest":
            path = master.root / master.attempts[step] / "manifest.json"
            size = path.stat().st_size
    byte = first + draw.randrange(size)
    return Flip(kind, step, path.relative_to(master.root), byte, draw.randrange(8))


def damaged_copy(master: Master, flip: Flip, target: Path) -> None:
    """Hard links to all files but the damaged one; the engine never writes into a file twice."""
    shutil.copytree(master.root, target, copy_function=os.link)
    data = bytearray((master.root / flip.path).read_bytes())
    data[flip.byte] ^= 1 << flip.bit
    (target / flip.path).unlink()
    (target / flip.path).write_bytes(data)


def check_verify(master: Master, flip: Flip, run: Path) -> str:
    """ "named", "harmless" or the fault in the verdict of `deepfreeze verify`."""
    done = run_program("verify", "--json", str(run))
    if done.returncode == 0:
        return "harmless"
    if done.returncode != 1:
        return f"verify ended with {done.returncode}: {done.stderr.strip()}"
    document = json.loads(done.stdout)
    if flip.step == 0:
        names = {fault["file"] for fault in document["records"]}
        return "named" if names == {flip.path.name} else f"verify names {names or 'nothing'}"
    faulty = {item["directory"]: item["faults"] for item in document["attempts"] if item["faults"]}
    if set(faulty) != {master.attempts[flip.step].name}:
        return f"verify finds faults in {set(faulty)}"
    (faults,) = faulty.values()
    if {fault["file"] for fault in faults} != {flip.path.name}:
        return f"verify names the files {[fault['file'] for fault in faults]}"
    return check_place(master, flip, faults[0]) if flip.kind == "data" else "named"


def check_place(master: Master, flip: Flip, fault: dict[str, Any]) -> str:
    stored = master.files[flip.step]
    block = (flip.byte - stored.header_bytes) // BLOCK_BYTES
    if fault["blocks"] != [block]:
        return f"verify names blocks {fault['blocks']}, hit was {block}"
    if set(fault["tensors"]) != stored.tensors_in_block(block):
        return f"verify names tensors {fault['tensors']}"
    return "named"


def check_restore(flip: Flip, verdict: str, run: Path) -> str:
    """ "newest", "fell back" or the fault in the restored state."""
    state = other_state()
    with df.Checkpointer(run) as ckpt:
        step = ckpt.restore(state)
        report = ckpt.last_restore
    if step not in STEPS or exact(state) != truth(step):
        return f"restore gave wrong values for step {step}"
    hit_newest = flip.step == STEPS[-1] and verdict != "harmless"
    expected = STEPS[-2] if hit_newest else STEPS[-1]
    if step != expected:
        return f"restore took step {step} instead of {expected}"
    said = report is not None and report.step == step and bool(report.fell_back_from)
    if said != hit_newest:
        return f"last_restore says {report}"
    return "fell back" if hit_newest else "newest"


def try_flip(master: Master, flip: Flip, run: Path, result: Result) -> None:
    row = result.rows.setdefault(flip.kind, Row())
    row.flips += 1
    row.hit_newest += flip.step == STEPS[-1]
    damaged_copy(master, flip, run)
    try:
        verdict = check_verify(master, flip, run)
        restored = check_restore(flip, verdict, run)
    except df.CheckpointError as error:
        verdict, restored = "named", f"restore refused: {error!r}"
    finally:
        shutil.rmtree(run)
    row.named += verdict == "named"
    row.harmless += verdict == "harmless"
    row.fell_back += restored == "fell back"
    row.restored_newest += restored == "newest"
    faults = [text for text in (verdict, restored) if text not in FINE]
    row.wrong += bool(faults)
    result.problems.extend(f"{flip}: {text}" for text in faults)


FINE = {"named", "harmless", "fell back", "newest"}


def prove(flips: int, seed: int, directory: Path) -> Result:
    master = make_master(directory / "master")
    before = snapshot_of(master.root)
    draw = random.Random(seed)
    result = Result(seed, {kind: Row() for kind in WEIGHTS})
    for number in range(flips):
        try_flip(master, draw_flip(master, draw), directory / f"flip-{number}", result)
        progress(number + 1, flips, "flips")
    if snapshot_of(master.root) != before:
        result.problems.append("a file of the undamaged run was written to")
    return result


def snapshot_of(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def table(result: Result) -> str:
    titles = ("hit", "flips", "in newest", "fell back", "newest", "named", "harmless", "wrong")
    lines = ["{:<10}{:>8}{:>11}{:>11}{:>8}{:>8}{:>10}{:>7}".format(*titles)]
    total: Counter[str] = Counter()
    for kind, row in result.rows.items():
        total.update(vars(row))
        lines.append(line_of(kind, vars(row)))
    lines.append(line_of("all", total))
    return "\n".join(lines)


def line_of(kind: str, row: dict[str, int]) -> str:
    names = ("flips", "hit_newest", "fell_back", "restored_newest", "named", "harmless", "wrong")
    return "{:<10}{:>8}{:>11}{:>11}{:>8}{:>8}{:>10}{:>7}".format(kind, *(row[n] for n in names))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("tests.e2e.detection", __doc__)
    parser.add_argument("--flips", type=int, default=2000)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    seed = announce_seed(options)
    with scratch(options, "detection") as directory:
        result = prove(options.flips, seed, Path(directory))
    rows = {kind: vars(row) for kind, row in result.rows.items()}
    figures = {"seed": seed, "rows": rows, "problems": result.problems}
    return conclude(options, table(result), figures, result.problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
