"""All cases of conformance.py, for each framework, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conformance import MODULE
from .training import FRAMEWORKS, missing

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_case(framework: str) -> None:
    if reason := missing(framework):
        pytest.skip(reason)
    command = [sys.executable, "-m", MODULE, framework, "--kills", "1"]
    done = subprocess.run(
        command, cwd=ROOT, timeout=600, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
