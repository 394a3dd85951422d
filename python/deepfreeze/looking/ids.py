"""Finds the ids that a verb's argument names, and the commits in them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from deepfreeze import _core
from deepfreeze.dcp.identity import Committed, Identity
from deepfreeze.errors import CheckpointError, make_error

_PROTOCOL = "deepfreeze://"
_LEFTOVER = re.compile(r".+\.[0-9a-f]{8}\.removed")  # as Identity.remove() names it


@dataclass(frozen=True)
class Commit:
    """One version of an id's metadata, and the streams that it names."""

    info: _core.CheckpointInfo
    streams: dict[str, _core.CheckpointInfo]
    fault: CheckpointError | None

    @property
    def bytes(self) -> int:
        """The size of all its streams that are known, in bytes."""
        return sum(stream.bytes for stream in self.streams.values())


@dataclass(frozen=True)
class Id:
    """One id, by its name in the directory that the argument names ("" is that directory)."""

    name: str
    identity: Identity

    @property
    def path(self) -> str:
        """Its directory."""
        return os.fspath(self.identity.folder)

    @property
    def shown(self) -> str:
        """Its name, as shown to people."""
        return self.name or self.identity.folder.name

    @property
    def number(self) -> int | None:
        """The number at the end of its directory's name, which is mostly its step."""
        found = re.search(r"(\d+)$", self.identity.folder.name)
        return int(found[1]) if found else None

    @cached_property
    def commits(self) -> list[Commit]:
        """Newest first; also those that can't be loaded any more."""
        return [self._commit(info) for info in self.identity.commits()]

    @property
    def newest_good(self) -> Commit | None:
        """The commit that a load would take, judged by the records alone."""
        return next((commit for commit in self.commits if commit.fault is None), None)

    @property
    def time(self) -> int:
        """The time of its newest commit."""
        return max((commit.info.wall_micros for commit in self.commits), default=0)

    def _commit(self, info: _core.CheckpointInfo) -> Commit:
        if info.fault:
            return Commit(info, {}, make_error("corrupt", info.fault))
        try:
            found: Committed = self.identity.whole(info, "records")
        except CheckpointError as error:
            return Commit(info, {}, error)
        return Commit(info, found.streams, None)


@dataclass(frozen=True)
class Place:
    """The directory that an argument names, and perhaps one checkpoint in it."""

    folder: Path
    at: str | None  # a number or "latest"

    @classmethod
    def of(cls, text: str) -> Place:
        """Parses an argument as the native program parses RUN and RUN@STEP."""
        path = text.removeprefix(_PROTOCOL)
        if "@" not in path or os.path.isdir(path):
            return cls(Path(path), None)
        path, _, at = path.rpartition("@")
        if at != "latest" and not (at.isascii() and at.isdigit()):
            raise make_error("invalid_argument", f"{text}: {at!r} is neither a step nor 'latest'")
        return cls(Path(path), at)

    @classmethod
    def whole(cls, text: str, verb: str) -> Place:
        """For verbs that take a whole directory. CheckpointError if nothing was saved in it."""
        place = cls.of(text)
        if place.at is not None:
            cause = f"{verb} takes a whole directory, without '@'"
            raise make_error("invalid_argument", f"{text}: {cause}")
        place.check_holds_ids()
        return place

    def check_holds_ids(self) -> None:
        """CheckpointError if nothing was saved."""
        if not self.ids and not self.leftovers:
            cause = "nothing was saved to it, or to an id in it, by way of deepfreeze://"
            raise make_error("not_found", f"{self.folder}: {cause}")

    @property
    def ids(self) -> list[Id]:
        """The newest first, then those in which nothing is committed."""
        own = Identity(self.folder)
        found = [Id("", own)] if own.exists else []
        if self.folder.is_dir():
            found += [Id(one.name, Identity(one)) for one in own.inner_folders if _is_id(one)]
        return sorted(found, key=lambda one: (one.time, one.number or 0, one.name), reverse=True)

    @property
    def leftovers(self) -> list[Path]:
        """Directories of ids whose removal was interrupted."""
        folders = [*self.folder.parent.iterdir()] if Identity(self.folder).exists else []
        beside = [one for one in folders if one.name.startswith(self.folder.name + ".")]
        inside = [*self.folder.iterdir()] if self.folder.is_dir() else []
        return sorted(
            one for one in [*beside, *inside] if _LEFTOVER.fullmatch(one.name) and one.is_dir()
        )

    def chosen(self) -> tuple[Id, Commit]:
        """The checkpoint that the argument names, else the newest; CheckpointError if none."""
        ids = self.ids
        number = None if self.at in (None, "latest") else int(self.at or 0)
        if number is None:
            found = next(((one, one.newest_good) for one in ids if one.commits), None)
        else:
            found = _numbered(ids, number)
        if found is None or found[1] is None:
            raise self._none(ids, found[0] if found else None)
        if found[1].fault is not None:
            raise found[1].fault
        return found[0], found[1]

    def _none(self, ids: list[Id], one: Id | None) -> CheckpointError:
        if one is not None:
            fault = one.commits[0].fault if one.commits else None
            cause = f"can't be loaded: {fault}" if fault else "was never committed"
            return make_error(fault.code if fault else "incomplete", f"{one.path}: it {cause}")
        what = "no checkpoint" if self.at is None else f"no checkpoint of step {self.at}"
        there = ", ".join(one.shown for one in ids[:8]) or "nothing"
        return make_error(
            "not_found", f"{self.folder} holds {what}; newest first, it holds {there}"
        )


def _is_id(folder: Path) -> bool:
    if not is_utf8(folder.name):  # the engine takes no such path, so nothing was saved there
        return False
    return Identity(folder).exists and not _LEFTOVER.fullmatch(folder.name)


def is_utf8(text: str) -> bool:
    """Whether the bytes of a path are UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _numbered(ids: list[Id], number: int) -> tuple[Id, Commit | None] | None:
    """In a directory of ids the id of that number; in an id its version of that number."""
    inner = [one for one in ids if one.name and one.number == number]
    if inner:
        return inner[0], inner[0].newest_good
    own = [one for one in ids if not one.name]
    found = [(one, commit) for one in own for commit in one.commits if commit.info.step == number]
    return found[0] if found else None


def is_dcp(text: str) -> bool:
    """Whether an argument names an id, or a directory of ids."""
    if text.startswith(_PROTOCOL):
        return True
    try:
        return bool(Place.of(text).ids)
    except CheckpointError:
        return False  # the text behind the "@" may be meant for a run
