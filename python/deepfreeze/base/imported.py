"""Asks whether the program has imported a module, without importing it."""

from __future__ import annotations

import sys


def imported(name: str) -> bool:
    """Whether the program uses this framework."""
    return sys.modules.get(name) is not None
