"""doctor: the native program's checks of the small runs, and whether commits lack a stream."""

from __future__ import annotations

import argparse
import os
from typing import Any

from deepfreeze.base.progress import human_bytes
from deepfreeze.base.verbs import print_json
from deepfreeze.errors import CheckpointError
from deepfreeze.looking import native
from deepfreeze.looking.ids import Commit, Id, Place
from deepfreeze.looking.output import human_age, readable

_GOOD, _FAULT, _FAILURE = 0, 1, 3


class _Visit:
    """The doctor's report of a directory of ids."""

    LISTS = ("findings", "repaired", "not_repaired", "deleted", "not_deleted")

    def __init__(self, place: Place, words: list[str]) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = {name: [] for name in self.LISTS}
        self.checkpoints: list[dict[str, Any]] = []
        self.failed = False
        self.blocks_read = "--verify" in words
        for one in place.ids:
            readings = self._visit_runs(one, words)
            for commit in one.commits:
                self._add_commit(one, commit, readings)
            if not one.commits:
                self._add(one.name, "not_committed", "note", _NOT_COMMITTED)
        for leftover in place.leftovers:
            self._add(leftover.name, "half_removed", "debris", _HALF_REMOVED)

    def _visit_runs(self, one: Id, words: list[str]) -> dict[str, dict[str, Any]]:
        """The time of the last full reading of each version in the small runs, by directory."""
        readings = {}
        for run in one.identity.runs:
            below = os.path.join(one.name, run.relative_to(one.identity.folder))
            try:
                found, code = native.document("doctor", [os.fspath(run), *words])
            except CheckpointError as error:
                self._add(below, "run_unread", "fault", ("it can't be read", ""), str(error))
                continue
            self.failed = self.failed or code == _FAILURE
            for name in self.LISTS:
                self.lists[name] += [
                    {**item, "place": os.path.join(below, item["place"])} for item in found[name]
                ]
            for reading in found["checkpoints"]:
                readings[os.path.join(run, reading["directory"])] = reading
        return readings

    def _add_commit(self, one: Id, commit: Commit, readings: dict[str, dict[str, Any]]) -> None:
        place = os.path.join(one.name, ".metadata")
        if commit.fault is not None and commit.fault.code != "corrupt":  # the runs tell of damage
            self._add(place, "stream_missing", "fault", _MISSING, str(commit.fault))
        parts = [
            readings.get(os.path.normpath(info.path))
            for info in (commit.info, *commit.streams.values())
        ]
        times = [part and part["last_full_read_micros"] for part in parts]
        read = min(time for time in times if time) if all(times) else None
        good = all(part and part["last_full_read_good"] for part in parts) if read else None
        self.checkpoints.append({
            "id": one.name, "path": one.path, "step": commit.info.step,
            "written_micros": commit.info.wall_micros, "last_full_read_micros": read,
            "last_full_read_good": good,
        })  # fmt: skip

    def _add(
        self, place: str, kind: str, weight: str, words: tuple[str, str], detail: str = ""
    ) -> None:
        means, remedy = words
        self.lists["findings"].append({
            "kind": kind, "weight": weight, "place": place or ".", "detail": detail, "bytes": 0,
            "tensors": [], "means": means, "remedy": remedy,
        })  # fmt: skip

    def count(self, weight: str) -> int:
        """The number of findings of that weight."""
        return sum(finding["weight"] == weight for finding in self.lists["findings"])


_NOT_COMMITTED = (
    "a save into it is in flight, or was interrupted; no load takes it",
    "remove the directory by hand when no job saves to it any more",
)
_HALF_REMOVED = ("an id whose removal was interrupted; no load takes it", "gc finishes it")
_MISSING = (
    "this version can't be loaded; a load takes the one before, if there is one",
    "bring the stream's directory back from a copy",
)


def doctor(options: argparse.Namespace) -> int:
    """Examines all small runs, and whether the versions that commits refer to exist."""
    place = Place.whole(options.run, "doctor")
    visit = _Visit(place, options.rest)
    good = visit.count("fault") == 0
    if options.json:
        print_json("doctor", {
            "dcp": {"path": str(place.folder)}, "good": good, "failed": visit.failed,
            "blocks_read": visit.blocks_read, "checkpoints": visit.checkpoints, **visit.lists,
        })  # fmt: skip
    else:
        _print_visit(visit)
    if visit.failed:
        return _FAILURE
    return _GOOD if good else _FAULT


def _print_visit(visit: _Visit) -> None:
    for name in ("repaired", "not_repaired", "deleted", "not_deleted"):
        for item in visit.lists[name]:
            more = item.get("how") or item.get("why") or human_bytes(item.get("bytes", 0))
            print(readable(f"{name.replace('_', ' ')} {item['place']}: {more}"))
    for item in visit.lists["findings"]:
        print(readable(f"{item['weight']} {item['kind']}: {item['place']}"))
        for text in (item["detail"], item["means"], item["remedy"]):
            if text:
                print(readable(f"  {text}"))
    if not visit.blocks_read and visit.checkpoints:
        print("the blocks were not read; --verify reads them all")
        for one in visit.checkpoints:
            print(readable(f"  {one['id'] or '.'} version {one['step']}: {_reading_text(one)}"))
    counts = [f"{visit.count('fault')} faults", f"{visit.count('debris')} debris"]
    unread = "" if visit.blocks_read or not visit.checkpoints else "; blocks were not read"
    print(f"{', '.join(counts)}, {visit.count('note')} notes{unread}")


def _reading_text(one: dict[str, Any]) -> str:
    read = one["last_full_read_micros"]
    if read is None:
        return f"never read in full, written {human_age(one['written_micros'])}"
    return f"read in full {human_age(read)}{'' if one['last_full_read_good'] else ', with a fault'}"
