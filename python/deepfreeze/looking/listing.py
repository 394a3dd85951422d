"""ls: the checkpoints of ids, newest first."""

from __future__ import annotations

import argparse
from typing import Any

from deepfreeze.base.progress import human_bytes
from deepfreeze.base.verbs import print_json
from deepfreeze.dcp.versions import versions
from deepfreeze.errors import CheckpointError
from deepfreeze.looking.ids import Commit, Id, Place
from deepfreeze.looking.output import human_age, print_table, readable, utc_time


def ls(options: argparse.Namespace) -> int:
    """One line for each commit of each id, and for each id without one."""
    place = Place.whole(options.run, "ls")
    ids = place.ids
    rows = [row for one in ids for row in _rows(one)]
    newest = next((row for row in rows if row["state"] == "committed"), None)
    if newest is not None:
        newest["flag"] = "newest"
    if options.json:
        print_json("ls", {"dcp": {"path": str(place.folder)}, "checkpoints": rows})
        return 0
    titles = ["CHECKPOINT", ">VERSION", ">STREAMS", ">BYTES", "TIME", ">AGE", "FLAG"]
    print_table(titles, [_cells(row) for row in rows])
    for row in rows:
        if "fault" in row:
            print(readable(f"{row['id'] or '.'}: {row['fault']}"))
    return 0


def _rows(one: Id) -> list[dict[str, Any]]:
    if one.commits:
        return [_row(one, commit, place == 0) for place, commit in enumerate(one.commits)]
    streams = {run.name: versions(run) for run in one.identity.runs if _is_readable(one, run.name)}
    size = sum(info.bytes for infos in streams.values() for info in infos)
    return [
        {"id": one.name, "path": one.path, "state": "not committed", "flag": "not committed",
         "bytes": size, "streams": [{"name": name} for name in streams]}
    ]  # fmt: skip


def _is_readable(one: Id, name: str) -> bool:
    run = one.identity.folder / "files" / name
    try:
        return run.is_dir() and bool(versions(run))
    except CheckpointError:
        return False


def _row(one: Id, commit: Commit, is_newest: bool) -> dict[str, Any]:
    state = "fault" if commit.fault else "committed"
    row: dict[str, Any] = {
        "id": one.name,
        "path": one.path,
        "step": commit.info.step,
        "attempt": commit.info.attempt_id,
        "state": state,
        "flag": "fault" if commit.fault else "" if is_newest else "older version",
        "bytes": commit.bytes,
        "time_micros": commit.info.wall_micros,
        "streams": [
            {"name": name, "step": info.step, "attempt": info.attempt_id, "bytes": info.bytes}
            for name, info in sorted(commit.streams.items())
        ],
    }
    if commit.fault:
        row["fault"] = str(commit.fault)
    return row


def _cells(row: dict[str, Any]) -> list[str]:
    time = row.get("time_micros")
    return [
        row["id"] or ".",
        str(row.get("step", "")),
        str(len(row["streams"])),
        human_bytes(row["bytes"]),
        utc_time(time) if time else "",
        human_age(time) if time else "",
        row["flag"],
    ]
