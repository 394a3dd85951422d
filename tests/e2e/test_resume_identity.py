"""Killed runs, in every mode of capture, end as the run that was never disturbed.

The full proof: `python -m tests.e2e.resume_identity --runs 100`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm_python

from .resume_identity import RUNS_THAT_SPREAD
from .resume_identity import Tally as Mode
from .small_run import MODES

ROOT = Path(__file__).resolve().parents[2]
RUNS = 4  # of each mode: with 16, some kill comes inside a save
BRANCHES = 4  # of its run without fences

Tally = dict[str, Any]


@pytest.fixture(scope="module")
def tallies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tally]:
    """The results by mode, from a process of its own: it forks, and this one may have threads."""
    command = [sys.executable, "-m", "tests.e2e.resume_identity", "--json", "--runs", str(RUNS)]
    command += ["--branches", str(BRANCHES)]
    command += ["--directory", str(tmp_path_factory.mktemp("resume"))]
    done = warm_python.run(command, cwd=ROOT, capture_output=True, serves=True)
    print(done.stderr)
    assert done.stdout, done.stderr
    return {each["mode"]: each for each in json.loads(done.stdout)["modes"]}


@pytest.fixture(params=MODES)
def tally(request: pytest.FixtureRequest, tallies: dict[str, Tally]) -> Tally:
    return tallies[request.param]


def test_every_killed_run_resumes_to_the_reference(tally: Tally) -> None:
    assert tally["runs"] == RUNS
    assert tally["identical"] == RUNS
    assert tally["kills"] >= RUNS


def test_kills_came_in_the_middle_of_runs_and_of_saves(tallies: dict[str, Tally]) -> None:
    assert sum(each["kill_found"].get("inside a save", 0) for each in tallies.values()) > 0
    steps = [step for each in tallies.values() for step in each["resumed_from"]]
    assert sum(step > 0 for step in steps) > len(steps) // 2


def test_many_runs_of_a_mode_must_be_killed_inside_saves_and_resumed() -> None:
    mode = Mode("eager", 1, "a", RUNS_THAT_SPREAD, RUNS_THAT_SPREAD, resumed_from=[0, 3])
    assert [fault for fault in mode.faults() if "no kill" in fault or "only 1 of" in fault] == [
        "eager: no kill came inside a save",
        f"eager: only 1 of {RUNS_THAT_SPREAD} runs resumed from a checkpoint",
    ]


def test_saves_were_captured_while_training_ran(tally: Tally) -> None:
    lazy = tally["mode"] != "eager"
    assert tally["saves"] > 0
    assert tally["lazy"] == (tally["saves"] if lazy else 0)
    assert (tally["fenced"] > 0) == lazy
    assert (tally["early"] > 0) == (tally["mode"] == "after_update")


def test_without_fences_a_save_fails_or_is_right(tally: Tally) -> None:
    unfenced = tally["unfenced"]
    assert (unfenced is None) == (tally["mode"] == "eager")
    if unfenced is not None:
        assert unfenced["torn"] > 0
        assert unfenced["committed"]
        assert unfenced["tried"] > 1
        assert unfenced["wrong"] == []


def test_the_control_that_forgets_nothing_ends_the_same(tally: Tally) -> None:
    assert tally["controls"]["nothing"] == tally["reference"]


@pytest.mark.parametrize("forgotten", ["rng", "data", "moment", "buffer"])
def test_a_forgotten_part_of_the_state_shows(tally: Tally, forgotten: str) -> None:
    assert tally["controls"][forgotten] != tally["reference"]
