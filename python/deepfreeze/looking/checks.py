"""verify and scrub: the native program reads the small runs; we report on each id as a whole."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from deepfreeze.base.progress import human_bytes
from deepfreeze.base.verbs import print_json
from deepfreeze.errors import CheckpointError, make_error
from deepfreeze.looking import native
from deepfreeze.looking.ids import Commit, Id, Place, is_dcp
from deepfreeze.looking.output import readable

_GOOD, _FAULT = 0, 1


def scrub(options: argparse.Namespace) -> int:
    """The native program reads all small runs in one pass, those unread for longest first."""
    owners: dict[str, Id] = {}
    words: list[str] = []
    for text in options.runs:
        if not is_dcp(text):
            words.append(text)
            continue
        for one in Place.whole(text, "scrub").ids:
            owners |= {os.fspath(run): one for run in one.identity.runs}
    found, code = native.document("scrub", [*words, *owners, *options.rest])
    for run in found["runs"]:
        if run["path"] in owners:
            run["dcp"] = {"id": owners[run["path"]].name, "path": owners[run["path"]].path}
    if options.json:
        print_json("scrub", {name: found[name] for name in found if name not in _HEAD})
    else:
        _print_scrubbed(found)
    return code


_HEAD = ("format", "command")


def _print_scrubbed(found: dict[str, Any]) -> None:
    """The runs of an id together, under its path."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in found["runs"]:
        groups.setdefault(run["dcp"]["path"] if "dcp" in run else run["path"], []).append(run)
    for path, runs in groups.items():
        size = sum(attempt["bytes"] for run in runs for attempt in run["attempts"])
        state = "ok" if all(run["good"] for run in runs) else "FAULT"
        print(readable(f"{path} {state} {human_bytes(size)}"))
        for run in runs:
            _print_run(run)
    unread = sum(run["unread"] for run in found["runs"])
    amount = f"{human_bytes(found['bytes'])} in {found['seconds']:.1f} s"
    print(f"{len(groups)} checkpoints or runs, {unread} versions not reached; {amount}")


def _print_run(run: dict[str, Any]) -> None:
    faults = [(run["path"], fault) for fault in run["records"]]
    for attempt in run["attempts"]:
        place = os.path.join(run["path"], attempt["directory"])
        faults += [(place, fault) for fault in attempt["faults"]]
    for place, fault in faults:
        print(readable(f"  {os.path.join(place, fault['file'])}: {fault['cause']}"))
    for text in [*(error["message"] for error in run["errors"]), *run["notes"]]:
        print(readable(f"  note: {text}"))


class _Finding:
    """The faults that verify found in one commit, or in versions that no commit refers to."""

    def __init__(self, one: Id, commit: Commit) -> None:
        self.id, self.commit = one, commit
        self.faults: list[dict[str, Any]] = []

    def document(self) -> dict[str, Any]:
        info = self.commit.info
        return {
            "id": self.id.name, "path": self.id.path, "step": info.step,
            "attempt": info.attempt_id, "bytes": self.commit.bytes, "faults": self.faults,
        }  # fmt: skip

    def print(self) -> None:
        state = "FAULT" if self.faults else "ok"
        what = f"{self.id.name or '.'} version {self.commit.info.step}"
        print(readable(f"{what} {state} {human_bytes(self.commit.bytes)}"))
        for fault in self.faults:
            print(readable(f"  {fault['file']}: {fault['cause']}"))


class _Verified:
    """The small runs of one id, read by the native program."""

    def __init__(self, one: Id, words: list[str]) -> None:
        self._one = one
        self.records: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self._faults: dict[str, list[dict[str, Any]]] = {}  # by the directory of an attempt
        for run in one.identity.runs:
            self._read(run, words)

    def _read(self, run: Path, words: list[str]) -> None:
        below = os.path.join(self._one.name, run.relative_to(self._one.identity.folder))
        try:
            found, _ = native.document("verify", [os.fspath(run), *words])
        except CheckpointError as error:
            self.records.append(_fault(below, str(error)))
            return
        self.records += [_within(below, fault) for fault in found["records"]]
        self.notes += [f"{below}/{note}" for note in found["notes"]]
        for attempt in found["attempts"]:
            place = os.path.join(below, attempt["directory"])
            path = os.path.join(run, attempt["directory"])
            self._faults[path] = [_within(place, fault) for fault in attempt["faults"]]

    def finding(self, commit: Commit) -> _Finding:
        """Takes the faults of the versions that the commit consists of."""
        finding = _Finding(self._one, commit)
        for info in (commit.info, *commit.streams.values()):
            finding.faults += self._faults.get(os.path.normpath(info.path), [])
        if commit.fault is not None and not finding.faults:
            finding.faults.append(
                _fault(os.path.join(self._one.name, ".metadata"), str(commit.fault))
            )
        return finding

    def left_over(self, commits: list[Commit]) -> list[str]:
        """Notes on damage in versions that no commit refers to; no load needs these."""
        known = {os.path.normpath(info.path) for commit in commits
                 for info in (commit.info, *commit.streams.values())}  # fmt: skip
        return [
            f"{fault['file']}: {fault['cause']}; no commit refers to it"
            for path, faults in self._faults.items()
            if path not in known
            for fault in faults
        ]


def _within(place: str, fault: dict[str, Any]) -> dict[str, Any]:
    return {**fault, "file": os.path.join(place, fault["file"])}


def _fault(file: str, cause: str) -> dict[str, Any]:
    return {"file": file, "cause": cause, "blocks": [], "tensors": []}


def verify(options: argparse.Namespace) -> int:
    """Reads every block of every version that a commit refers to; with --fast, no data."""
    if options.deep and options.fast:
        raise make_error("invalid_argument", "--deep reads everything and --fast no data")
    words = [f"--{name}" for name in ("deep", "fast") if getattr(options, name)]
    place = Place.of(options.run)
    place.check_holds_ids()
    chosen = None if place.at is None else place.chosen()
    findings: list[_Finding] = []
    records: list[dict[str, Any]] = []
    notes: list[str] = []
    for one in place.ids if chosen is None else [chosen[0]]:
        read = _Verified(one, words)
        commits = one.commits if chosen is None else [chosen[1]]
        findings += [read.finding(commit) for commit in commits]
        if chosen is None:
            records += read.records
            notes += read.left_over(one.commits)
        if chosen is None or options.fast:
            notes += read.notes
        if not one.commits:
            notes.append(f"{one.name or '.'}: not committed; half-written or in progress")
    good = not records and not any(finding.faults for finding in findings)
    if options.json:
        print_json("verify", {
            "dcp": {"path": str(place.folder)}, "good": good, "records": records,
            "attempts": [finding.document() for finding in findings], "notes": notes,
        })  # fmt: skip
        return _GOOD if good else _FAULT
    for record in records:
        print(readable(f"run record FAULT\n  {record['file']}: {record['cause']}"))
    for finding in findings:
        finding.print()
    for note in notes:
        print(readable(f"note: {note}"))
    bad = sum(bool(finding.faults) for finding in findings)
    done = "looked at" if options.fast else "read"
    print(f"{len(findings)} checkpoints {done}, {bad} with a fault")
    return _GOOD if good else _FAULT
