"""Killed runs, in every mode of capture, end as the run that was never disturbed.

The full proof: `python -m tests.e2e.resume_identity --runs 100`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .small_run import MODES

ROOT = Path(__file__).resolve().parents[2]
RUNS = 16  # of each mode


@pytest.fixture(scope="module", params=MODES)
def tally(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The results of one mode, in a process of its own: it forks, and this one may have threads."""
    command = [sys.executable, "-m", "tests.e2e.resume_identity", "--json", "--runs", str(RUNS)]
    command += ["--mode", request.param, "--directory", str(tmp_path_factory.mktemp("resume"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stderr)
    assert done.stdout, done.stderr
    (result,) = json.loads(done.stdout)["modes"]
    assert isinstance(result, dict)
    return result


def test_every_killed_run_resumes_to_the_reference(tally: dict[str, Any]) -> None:
    assert tally["runs"] == RUNS
    assert tally["identical"] == RUNS
    assert tally["kills"] >= RUNS


def test_kills_came_in_the_middle_of_runs_and_of_saves(tally: dict[str, Any]) -> None:
    assert tally["kill_found"]["inside a save"] > 0
    assert sum(step > 0 for step in tally["resumed_from"]) > RUNS // 2


def test_saves_were_captured_while_training_ran(tally: dict[str, Any]) -> None:
    lazy = tally["mode"] != "eager"
    assert tally["saves"] > 0
    assert tally["lazy"] == (tally["saves"] if lazy else 0)
    assert (tally["fenced"] > 0) == lazy
    assert (tally["early"] > 0) == (tally["mode"] == "after_update")


def test_without_fences_a_save_fails_or_is_right(tally: dict[str, Any]) -> None:
    unfenced = tally["unfenced"]
    assert (unfenced is None) == (tally["mode"] == "eager")
    if unfenced is not None:
        assert unfenced["torn"] > 0
        assert unfenced["committed"]
        assert unfenced["wrong"] == []


def test_the_control_that_forgets_nothing_ends_the_same(tally: dict[str, Any]) -> None:
    assert tally["controls"]["nothing"] == tally["reference"]


@pytest.mark.parametrize("forgotten", ["rng", "data", "moment", "buffer"])
def test_a_forgotten_part_of_the_state_shows(tally: dict[str, Any], forgotten: str) -> None:
    assert tally["controls"][forgotten] != tally["reference"]
