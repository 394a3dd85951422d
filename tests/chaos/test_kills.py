"""A process killed at any fail point leaves a run that restores an acknowledged state."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm_python

from .fail_points import fail_points_of_one
from .ways import ways_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """In a process of its own, because it forks: each fail point once, on one way."""
    directory = tmp_path_factory.mktemp("kills")
    command = [sys.executable, "-m", "tests.chaos.kills", "--json", "--quick"]
    command += ["--directory", str(directory)]
    done = warm_python.run(command, cwd=ROOT, capture_output=True)
    print(done.stderr)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_was_acknowledged_is_restored_after_a_kill_at_every_fail_point(
    tally: dict[str, Any],
) -> None:
    assert tally["faults"] == []
    reached = tally["at_points"].keys()
    for each in tally["left_out"]:
        warnings.warn(f"LEFT OUT: {each}", stacklevel=1)
    left_out = {each.split(":")[0] for each in tally["left_out"]}
    assert set(fail_points_of_one()) - left_out <= reached


def test_every_fail_point_has_a_way_that_leads_there() -> None:
    assert [point for point in fail_points_of_one() if not ways_of(point)] == []


@pytest.mark.parametrize("lie", ["byte", "early"])
def test_a_wrong_byte_and_an_early_acknowledgement_are_found(lie: str, tmp_path: Path) -> None:
    """Negative controls: faults that the trainer is given."""
    command = [sys.executable, "-m", "tests.chaos.kills", "--json", "--quick", "--lie", lie]
    command += ["--directory", str(tmp_path)]
    done = warm_python.run(command, cwd=ROOT, capture_output=True)
    assert done.returncode == 1, done.stderr
    words = {"byte": "wrong bytes", "early": "was acknowledged"}
    assert words[lie] in json.loads(done.stdout)["faults"][0]
