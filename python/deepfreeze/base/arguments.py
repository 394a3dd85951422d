"""Checks the arguments that a caller gives beside the state: paths, steps, metrics, tags."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepfreeze.base.names import shortened

Parent = tuple[str | os.PathLike[str], int]  # a run and a step of it


def absolute(path: str | os.PathLike[str], what: str = "path") -> Path:
    """The path that `path` means now, even if the program changes its directory later.

    Links and ".." in it stay, and "~" is a name like any other, as for pathlib.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"{what}: {text!r} is no str; os.fsdecode() makes one of it")
    if not text or "\0" in text:
        raise ValueError(f"{what}: {text!r} is no path: it is empty or has a null character")
    if is_object_url(text):
        raise ValueError(
            f"{what}: {text} is in an object store, and this needs a directory. Name a store among "
            "the tiers: tiers=[df.tier(...)]"
        )
    return Path(text).absolute()


def is_object_url(text: str) -> bool:
    """Whether it names a place in an object store."""
    return text.startswith("s3://")


def absolute_parent(parent: Parent | None) -> tuple[str, int] | None:
    """A parent with an absolute path. The new run's record keeps the path, as UTF-8."""
    if parent is None:
        return None
    run, step = parent
    text = os.fspath(absolute(run, "parent"))
    if not is_unicode(text):
        raise ValueError(
            f"parent: {text!r} is not UTF-8, and the new run records the path as such: rename the "
            "directory, or reach it by a link with another name"
        )
    return text, step


def absolute_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for a Checkpointer that is made later, with the paths that they mean now."""
    made = dict(options)
    if made.get("parent") is not None:
        made["parent"] = absolute_parent(made["parent"])
    if made.get("prometheus_textfile") is not None:
        made["prometheus_textfile"] = absolute(made["prometheus_textfile"], "prometheus_textfile")
    return made


def is_unicode(text: str) -> bool:
    """Whether it has no lone surrogates; Python uses them for bytes that are not UTF-8."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def checked_step(step: int) -> int:
    """The step as a number of 64 bits; TypeError or ValueError if it isn't one."""
    if isinstance(step, bool):
        raise TypeError("step: a bool")
    try:
        value = operator.index(step)
    except TypeError as cause:
        raise TypeError(f"step: a {type(step).__qualname__} is no whole number") from cause
    if value < 0:
        raise ValueError(f"step: {value} is less than 0")
    if value >= 1 << 64:
        raise ValueError(f"step: {value} is beyond 64 bits")
    return value


def floats(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics as names and numbers; TypeError names a value that is no number."""
    return {_unicode(str(name), "metrics"): _float(name, value) for name, value in metrics.items()}


def _float(name: str, value: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as cause:
        raise TypeError(shortened(f"metrics: {name!r}: {value!r} is no number")) from cause


def strings(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as pairs of strings; TypeError names a pair that has something else."""
    for name, value in tags.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(shortened(f"tags: {name!r}: {value!r} is no pair of strings"))
    return {_unicode(name, "tags"): _unicode(value, "tags") for name, value in tags.items()}


def _unicode(text: str, what: str) -> str:
    if is_unicode(text):
        return text
    raise ValueError(shortened(f"{what}: {text!r} is not Unicode, and can't be stored as UTF-8"))
