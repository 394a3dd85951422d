"""The package's chainer_compat, in an environment that has not got the package."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

_FILE = Path(__file__).resolve().parents[2] / "python" / "deepfreeze" / "chainer_compat.py"

install: Callable[[], None] = runpy.run_path(str(_FILE))["install"]
