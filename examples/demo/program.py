"""Finds and runs the native `deepfreeze` program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path


def find_program() -> str:
    """DEEPFREEZE_PROGRAM, else the one beside this Python, else the one on the PATH."""
    chosen = os.environ.get("DEEPFREEZE_PROGRAM")
    beside = Path(sysconfig.get_path("scripts")) / "deepfreeze"
    found = chosen or shutil.which(str(beside)) or shutil.which("deepfreeze")
    if found is None:
        raise FileNotFoundError("find the deepfreeze program: not beside this Python, not on PATH")
    return found


def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """With its output captured; the caller judges the exit status."""
    command = [find_program(), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
