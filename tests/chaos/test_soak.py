"""A moment of chaos, and proofs that it would find faults."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm_python

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 8
LIE_SECONDS = 8  # at most: the first violation ends it


def soak(directory: Path, seconds: float, *more: str) -> dict[str, Any]:
    """Its figures; the seed and the last events are printed."""
    command = [sys.executable, "-m", "tests.chaos.soak", "--json", *more]
    command += ["--minutes", str(seconds / 60), "--directory", str(directory)]
    done = warm_python.run(command, cwd=ROOT, capture_output=True)
    print(done.stderr)
    assert done.stdout, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    print(*figures["last_events"], sep="\n")
    assert done.returncode == (1 if figures["faults"] else 0)
    return figures


def test_chaos_loses_nothing_and_leaves_nothing_behind(tmp_path: Path) -> None:
    figures = soak(tmp_path, SECONDS)
    for each in figures["left_out"]:
        warnings.warn(f"LEFT OUT: {each}", stacklevel=1)
    assert figures["faults"] == []
    assert figures["saves"]["durable"] > 0
    assert figures["restores"]["in all"] > 1
    assert figures["counts"]["loads"] > 0


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        ("damage", "finds faults in|was acknowledged"),  # by `verify`, or by the reader before it
        ("leak", "heap_bytes grew"),
    ],
)
def test_what_is_wrong_is_found(lie: str, found: str, tmp_path: Path) -> None:
    """Negative controls; a trainer that does wrong is found in the same way as in test_kills.py."""
    figures = soak(tmp_path, LIE_SECONDS, "--lie", lie)
    assert re.search(found, figures["faults"][0])
