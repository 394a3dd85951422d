"""The releases of trainers that were tried: the package uses parts that they don't promise."""

from __future__ import annotations

import logging
import re
from importlib.metadata import version

log = logging.getLogger("deepfreeze")

_TESTED = {
    "lightning": "2.6",
    "transformers": "5.23",
    "accelerate": "1.15",
    "torchtitan": "0.3",
}
_RELEASE = re.compile(r"(\d+)(?:\.(\d+))?")
_warned: set[str] = set()


def warn_of_other_release(package: str) -> None:
    """Warns once per process if `package` is another major release than the tested one.

    Minor releases keep the parts that we use, as far as anybody knows.
    """
    here, tested = version(package), _TESTED[package]
    if package in _warned or _major(here) == _major(tested):
        return
    _warned.add(package)
    log.warning(
        "%s %s is another major release than the one that DeepFreeze was tried with, %s: try a "
        "save and a resume before you rely on them",
        package,
        here,
        tested,
    )


def _major(release: str) -> str:
    """The major number; for 0.x, whose minor releases may change anything, both numbers."""
    found = _RELEASE.match(release)
    if found is None:
        return release
    return f"0.{found[2] or 0}" if found[1] == "0" else found[1]
