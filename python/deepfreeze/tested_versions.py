"""Which versions of trainers were tried: what is built on may be their own business."""

from __future__ import annotations

import logging
from importlib.metadata import version

log = logging.getLogger("deepfreeze")

_TESTED = {
    "lightning": ("2.6",),
    "transformers": ("5.23",),
    "accelerate": ("1.15",),
    "torchtitan": ("0.3",),
}
_warned: set[str] = set()


def warn_where_untested(package: str) -> None:
    """One warning a process where another minor version of `package` is here."""
    here = version(package)
    tested = _TESTED[package]
    if package in _warned or any(here.startswith(f"{each}.") for each in tested):
        return
    _warned.add(package)
    log.warning("%s %s was not tried with DeepFreeze; %s was", package, here, ", ".join(tested))
