"""A hundred killed and resumed runs end like the one that was never interrupted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNS = 100


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """In a process of its own: it forks, and this one may have threads."""
    command = [sys.executable, "-m", "tests.e2e.resume_identity", "--json", "--runs", str(RUNS)]
    command += ["--directory", str(tmp_path_factory.mktemp("resume"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stderr)
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_every_killed_run_resumes_to_the_reference(tally: dict[str, Any]) -> None:
    assert tally["runs"] == RUNS
    assert tally["identical"] == RUNS
    assert tally["kills"] >= RUNS


def test_kills_came_in_the_middle_of_runs_and_of_saves(tally: dict[str, Any]) -> None:
    assert tally["kill_found"]["inside a save"] > 0
    assert sum(step > 0 for step in tally["resumed_from"]) > RUNS // 2


def test_the_control_that_forgets_nothing_ends_the_same(tally: dict[str, Any]) -> None:
    assert tally["controls"]["nothing"] == tally["reference"]


@pytest.mark.parametrize("forgotten", ["rng", "data", "moment", "buffer"])
def test_a_forgotten_part_of_the_state_shows(tally: dict[str, Any], forgotten: str) -> None:
    assert tally["controls"][forgotten] != tally["reference"]
