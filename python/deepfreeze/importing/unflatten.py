"""Rebuilds the tree from which flat names were made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deepfreeze.errors import CorruptError
from deepfreeze.state.encoder import DEPTH_MAX

_HOLES_MAX = 1 << 20  # in all lists: places for which nothing was stored

Keys = tuple[str | int, ...]


class _Branch(dict[str | int, Any]):
    """A container of the tree; a leaf may be a plain dict."""


def unflatten(leaves: Iterable[tuple[Keys, object]]) -> dict[str, Any]:
    """Makes dicts, and lists if the keys are numbers.

    Empty containers were not stored: None stands for them in lists. CorruptError if paths collide.
    """
    root = _Branch()
    for keys, value in leaves:
        if len(keys) > DEPTH_MAX:
            raise CorruptError(f"{_shown(keys[:3])}…: nested more than {DEPTH_MAX} deep")
        branch = root
        for key in keys[:-1]:
            branch = branch.setdefault(key, _Branch())
            if not isinstance(branch, _Branch):
                raise CorruptError(f"{_shown(keys)}: it lies within a value")
        if keys[-1] in branch:
            raise CorruptError(f"{_shown(keys)}: it occurs twice")
        branch[keys[-1]] = value
    tree = _Finishing().finished(root, ())
    if not isinstance(tree, dict):
        raise CorruptError("the state is a list, but DCP stores a dict")
    return tree


class _Finishing:
    """Turns branches into plain dicts and lists."""

    def __init__(self) -> None:
        self._holes_left = _HOLES_MAX

    # One frame per level, so that the greatest depth fits into Python's own limit.
    def finished(self, branch: _Branch, path: Keys) -> Any:
        done: dict[str | int, Any] = {}
        for key, value in branch.items():
            is_inner = isinstance(value, _Branch)
            done[key] = self.finished(value, (*path, key)) if is_inner else value
        if all(type(key) is str for key in done):
            return done
        if not all(type(key) is int and key >= 0 for key in done):
            raise CorruptError(f"{_shown(path)}: keys of a dict and of a list")
        length = 1 + max(int(key) for key in done)
        self._holes_left -= length - len(done)
        if self._holes_left < 0:
            raise CorruptError(f"{_shown(path)}: a list of {length} with {len(done)} items")
        return [done.get(index) for index in range(length)]


def _shown(keys: Keys) -> str:
    return ".".join(map(str, keys)) or "the state"
