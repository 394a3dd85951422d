"""Nodes with near directories of their own: real processes, networks and mounts. Needs root."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.chaos.fail_points import fail_points
from tests.support import warm_python

from . import parity_points
from .cases import CASES, FULL

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("case", [case for case in CASES if case not in FULL])
def test_nodes(tmp_path: Path, case: str) -> None:
    """In a process of its own, which has the namespaces: they go with it."""
    command = [sys.executable, "-m", "tests.nodes.namespaces.cases", case, "--json"]
    command += ["--directory", str(tmp_path)]
    done = warm_python.run(command, warm_python.RANKS, cwd=ROOT, capture_output=True)
    print(done.stderr)
    assert done.stdout, done.stderr
    figures = json.loads(done.stdout)
    if figures["left_out"]:
        pytest.skip(f"LEFT OUT: {figures['left_out']}")
    assert figures["faults"] == []


def test_nodes_are_lost_at_points_that_there_are() -> None:
    """All others are in NOT_HERE, whose every line names some."""
    known = fail_points()
    assert {blow.point for blow in parity_points.all_blows()} <= set(known)
    for beginning in parity_points.NOT_HERE:
        assert any(name.startswith(beginning) for name in known), beginning
