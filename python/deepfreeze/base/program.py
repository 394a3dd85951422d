"""Finds the installed native program `deepfreeze`, which has all verbs but those in Python."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

NOT_FOUND = (
    "its native program, which has this verb, was found neither beside this Python nor on the "
    "PATH; `pip install --force-reinstall deepfreeze-checkpoint` installs it"
)
_NAME = "deepfreeze"
_DISTRIBUTION = "deepfreeze-checkpoint"
_ELF = b"\x7fELF"  # a script of that name could be one that calls us


def find() -> Path | None:
    """The program that belongs to this package, if that can be told, else the one on the PATH."""
    return next((path for path in _candidates() if _is_native(path)), None)


def _candidates() -> Iterator[Path]:
    yield from _installed()
    for scheme in (None, sysconfig.get_preferred_scheme("user")):
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        yield Path(folder) / _NAME
    yield Path(sys.executable).parent / _NAME
    yield Path(__file__).parents[2] / "bin" / _NAME  # of `pip install --target`
    on_path = shutil.which(_NAME)
    if on_path:
        yield Path(on_path)


def _installed() -> list[Path]:
    """The paths that the installer has noted, wherever it put programs."""
    try:
        files = metadata.files(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in files if file.name == _NAME]


def _is_native(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_ELF)) == _ELF and os.access(path, os.X_OK)
    except OSError:
        return False
