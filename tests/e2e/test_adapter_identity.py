"""A frozen base with adapters: killed runs end as the run that was never disturbed.

The full proof: `python -m tests.e2e.adapter_identity --kills 50`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm_python

from .adapter_identity import CONTROLS, KILLS_THAT_SPREAD, Tally

ROOT = Path(__file__).resolve().parents[2]
KILLS = 2


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """From a process of its own: it forks, and this one may have threads."""
    command = [sys.executable, "-m", "tests.e2e.adapter_identity", "--json", "--kills", str(KILLS)]
    command += ["--directory", str(tmp_path_factory.mktemp("adapter"))]
    done = warm_python.run(command, cwd=ROOT, capture_output=True)
    print(done.stderr)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_killed_run_resumes_to_the_reference(tally: dict[str, Any]) -> None:
    assert tally["faults"] == []
    assert tally["kills"] >= KILLS
    assert tally["identical"] == tally["runs"] > 0


def test_a_forgotten_part_of_the_state_shows(tally: dict[str, Any]) -> None:
    same = [name for name, digest in tally["controls"].items() if digest == tally["reference"]]
    assert same == ["nothing"]
    assert tally["controls"].keys() == {"nothing", *CONTROLS}


def test_many_kills_must_come_while_files_are_shared() -> None:
    found = Tally(1, "a", kills=KILLS_THAT_SPREAD, controls={"nothing": "a"})
    assert found.faults() == ["no kill came while checkpoints shared a file"]
