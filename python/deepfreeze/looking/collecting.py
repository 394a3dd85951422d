"""gc: deletes versions that nothing refers to; whole checkpoints only if a rule was given."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from deepfreeze import _core
from deepfreeze.base.progress import human_bytes
from deepfreeze.base.verbs import print_json
from deepfreeze.errors import CheckpointError, make_error
from deepfreeze.looking.ids import Commit, Id, Place
from deepfreeze.looking.output import readable


class _Collector:
    """Deletes directories, or only notes which it would delete."""

    def __init__(self, place: Place, options: argparse.Namespace) -> None:
        self._place = place
        self._options = options
        self.removed: list[dict[str, Any]] = []
        self.left: list[dict[str, str]] = []

    def _note(self, path: Path, size: int, why: str) -> None:
        self.removed.append({"path": str(path), "bytes": size, "why": why})

    def collect(self) -> None:
        """Whole ids first, then versions within those that stay."""
        ids = self._place.ids
        for one in self._expired_ids(ids):
            self._note(one.identity.folder, sum(commit.bytes for commit in one.commits), "by rule")
            if not self._options.dry_run:
                one.identity.remove()
            ids.remove(one)
        for leftover in self._place.leftovers:
            self._note(leftover, _size_of(leftover), "its removal was interrupted")
            if not self._options.dry_run:
                shutil.rmtree(leftover)
        for one in ids:
            self._collect_within(one)

    def _expired_ids(self, ids: list[Id]) -> list[Id]:
        """The ids that a rule expires; never the newest, nor damaged or uncommitted ones."""
        if self._options.keep_last is None:
            return []
        good = [one for one in ids if one.name and one.newest_good is not None]
        return [one for one in good[self._options.keep_last :] if not self._is_kept(one)]

    def _is_kept(self, one: Id) -> bool:
        every = self._options.keep_every
        return every is not None and one.number is not None and one.number % every == 0

    def _collect_within(self, one: Id) -> None:
        if not one.commits:
            self._leave(one, "it is not committed: a save may be under way; else remove it by hand")
            return
        try:
            unused = one.identity.expired()
            unused += self._older_version(one)
        except CheckpointError as error:
            self._leave(one, f"old versions stay: {error}")
            return
        for info in unused:
            self._note(Path(info.path), info.bytes, "nothing refers to it any more")
            if not self._options.dry_run:
                _core.delete_checkpoint(info)

    def _older_version(self, one: Id) -> list[_core.CheckpointInfo]:
        """The older version of a single id, if only one is to be kept, with the streams of its own.

        Its metadata comes first, so that no metadata ever refers to missing streams.
        """
        if one.name or self._options.keep_last != 1 or one.commits[0].fault:
            return []
        older: list[Commit] = one.commits[1:]
        kept = {(name, _id_of(info)) for name, info in one.commits[0].streams.items()}
        streams = [
            info
            for commit in older
            for name, info in commit.streams.items()
            if (name, _id_of(info)) not in kept
        ]
        return [*(commit.info for commit in older), *streams]

    def _leave(self, one: Id, why: str) -> None:
        self.left.append({"path": one.path, "why": why})


def _id_of(info: _core.CheckpointInfo) -> tuple[int, str]:
    return info.step, info.attempt_id


def _size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def gc(options: argparse.Namespace) -> int:
    """Deletes no committed checkpoint unless --keep-last is given."""
    place = Place.whole(options.run, "gc")
    if options.keep_best is not None:
        raise make_error("invalid_argument", "--keep-best: ids of DCP have no metrics")
    collector = _Collector(place, options)
    collector.collect()
    size = sum(one["bytes"] for one in collector.removed)
    if options.json:
        document = {"dcp": {"path": str(place.folder)}, "dry_run": options.dry_run}
        print_json("gc", {**document, "removed": collector.removed, "left": collector.left,
                          "bytes_freed": size})  # fmt: skip
        return 0
    verb = "would remove" if options.dry_run else "removed"
    for one in collector.removed:
        print(readable(f"{verb} {one['path']}: {one['why']}"))
    for other in collector.left:
        print(readable(f"left {other['path']}: {other['why']}"))
    print(f"{verb} {len(collector.removed)} directories, {human_bytes(size)}")
    if options.keep_last is None:
        print("no committed checkpoint is deleted without --keep-last")
    return 0
