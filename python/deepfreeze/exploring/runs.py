"""Runs, the steps that they started from, and the runs that started from them."""

from __future__ import annotations

import contextlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepfreeze import _core
from deepfreeze.errors import CheckpointError
from deepfreeze.exploring.steps import ODD, Keep, Step, mark_kept, steps_of
from deepfreeze.looking import native

_ANCESTORS_MAX = 64  # the same as kParentsMax in src/inspect/lineage.h
_READERS = 4  # runs that are read at a time
_CLAIM = re.compile(r"generation-(\d{8,})\.json")
_CLAIM_BYTES_MAX = 1 << 20
_SCRUB_BYTES_MAX = 4 << 20


@dataclass
class Parent:
    """The run and step from which a run started."""

    path: str
    step: int
    run_id: str = ""
    cause: str = ""  # why that run can't be opened
    run: str | None = None  # its id among the explored runs


@dataclass
class Run:
    """One run, as it was when the program started."""

    path: Path
    id: str = ""  # in addresses of the page; unique among the explored runs
    name: str = ""
    run_id: str = ""
    named: bool = True  # False for a run that was added because another started from it
    fault: str = ""  # why it can't be read
    parents: list[Parent] = field(default_factory=list)  # the nearest first
    forks: list[str] = field(default_factory=list)
    generations: list[dict[str, Any]] = field(default_factory=list)
    began_micros: int = 0  # when it was claimed first; 0: not known
    keep: Keep = field(default_factory=Keep)
    steps: list[Step] = field(default_factory=list)  # the oldest first

    @property
    def committed(self) -> list[Step]:
        """The steps with data, in the order in which they were saved."""
        return [step for step in self.steps if step.info is not None]

    def step_of(self, attempt: str) -> Step | None:
        """The step that was saved by the attempt of this id."""
        return next((step for step in self.steps if step.attempt == attempt), None)

    def document(self) -> dict[str, Any]:
        """The run as the page and `--json` get it."""
        parent = self.parents[0] if self.parents else None
        return {
            "id": self.id,
            "name": self.name,
            "path": _text(self.path),
            "run_id": self.run_id,
            "named": self.named,
            "fault": self.fault,
            "parent": parent and vars(parent),
            "forks": self.forks,
            "generations": self.generations,
            "keep": self.keep.text(),
            "steps": [step.document() for step in self.steps],
        }


def read_runs(paths: list[Path]) -> list[Run]:
    """Reads the runs, and those they started from; links both ways."""
    with ThreadPoolExecutor(_READERS) as pool:
        runs = list(pool.map(_read, paths))
        for _ in range(_ANCESTORS_MAX):
            missing = _missing_parents(runs)
            if not missing:
                break
            added = list(pool.map(_read, missing))
            for run in added:
                run.named = False
            runs += added
    _name(runs)
    _link(runs)
    return runs


def _read(path: Path) -> Run:
    run = Run(path)
    try:
        listed, _ = native.document("ls", [os.fspath(path)])
        logged, _ = native.document("log", [os.fspath(path)])
        infos = _core.list_checkpoints(os.fspath(path))
    except CheckpointError as error:
        run.fault = str(error)
        return run
    try:
        _fill(run, listed, logged, infos)
    except ODD as error:  # deleted meanwhile, or a record that nothing of ours has written
        run.fault = f"it can't be understood: {error!r}"
    return run


def _fill(
    run: Run, listed: dict[str, Any], logged: dict[str, Any], infos: list[_core.CheckpointInfo]
) -> None:
    run.run_id = listed["run"]["id"]
    run.parents = [
        Parent(each["run"], each["step"], each.get("id", ""), each.get("cause", ""))
        for each in logged["parents"]
    ]
    run.generations = [
        {name: each[name] for name in ("generation", "claim_readable", "resumed_from")}
        for each in logged["generations"]
    ]
    run.steps = steps_of(listed["checkpoints"], infos)
    run.keep, run.began_micros = _newest_rules(run.path), _began(run.path)
    _note_readings(run)
    mark_kept(run.steps, run.keep)


def _missing_parents(runs: list[Run]) -> list[Path]:
    """Parents that can be opened and were not read yet."""
    known = {run.path for run in runs} | {Path(os.path.realpath(run.path)) for run in runs}
    ids = {run.run_id for run in runs}
    missing: dict[Path, None] = {}
    for run in runs:
        for parent in run.parents[:1]:
            path = Path(parent.path)
            if not parent.cause and parent.run_id not in ids and path not in known:
                missing[path] = None
    return list(missing)


def _name(runs: list[Run]) -> None:
    """Short names: the paths below the nearest directory that has them all."""
    folders = [os.fspath(run.path.parent) for run in runs]
    common = os.path.commonpath(folders) if folders else "/"
    taken: set[str] = set()
    for place, run in enumerate(runs):
        run.name = _text(Path(os.path.relpath(run.path, common)))
        run.id = run.run_id or f"run{place}"
        if run.id in taken:  # a copy of another one
            run.id = f"{run.id}.{place}"
        taken.add(run.id)


def _link(runs: list[Run]) -> None:
    by_path = {os.path.realpath(run.path): run for run in runs}
    by_id: dict[str, Run] = {}
    for run in runs:
        by_id.setdefault(run.run_id, run)
    for run in runs:
        for parent in run.parents[:1]:
            found = by_path.get(os.path.realpath(parent.path)) or (
                by_id.get(parent.run_id) if parent.run_id else None
            )
            if found is not None and found is not run:
                parent.run = found.id
                found.forks.append(run.id)


def _newest_rules(run: Path) -> Keep:
    """The rules of the process that claimed the run last: shown, and used for nothing else."""
    try:
        claims = _claims(run)
        if not claims:
            return Keep()
        record = json.loads(_beginning(run / claims[-1], _CLAIM_BYTES_MAX))
        return Keep.of(record.get("keep") or {})
    except ODD:
        return Keep()


def _began(run: Path) -> int:
    """The time of the first claim, which no step that the run started from can be newer than."""
    try:
        record = json.loads(_beginning(run / _claims(run)[0], _CLAIM_BYTES_MAX))
        return int(record["wall_micros"])
    except ODD:
        return 0


def _claims(run: Path) -> list[str]:
    """The names of the records of claims, the oldest first."""
    claims = [
        (int(match[1]), name) for name in os.listdir(run) if (match := _CLAIM.fullmatch(name))
    ]
    return [name for _, name in sorted(claims)]


def _note_readings(run: Run) -> None:
    """Takes the times of full readings from scrub.json: a hint, shown and used for nothing else."""
    by_name = {f"step-{step.step:012d}-{step.attempt}": step for step in run.steps}
    with contextlib.suppress(*ODD):
        record = json.loads(_beginning(run.path / "scrub.json", _SCRUB_BYTES_MAX))
        if record["run_id"] != run.run_id:
            return
        for each in record["checkpoints"]:
            step = by_name.get(each["directory"])
            if step is not None:
                step.read_micros, step.read_good = int(each["wall_micros"]), bool(each["good"])


def _beginning(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


def _text(path: Path) -> str:
    return os.fsencode(path).decode(errors="replace")
