"""A long run has passed only where it says what it found, and left nothing out."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import torture
from tests.e2e import torn_capture


def carried_out(figures: str, text: str, status: int = 0) -> tuple[bool, list[str]]:
    program = f"print({text!r}); raise SystemExit({status})"
    run = torture.Run("name", "what", (sys.executable, "-c", program), figures)
    result = torture.carry_out(run, "a1b2c3d")
    return result["passed"], result["found"]


@pytest.mark.parametrize(
    ("text", "status", "passed"),
    [
        ("xfs: 3 cuts", 0, True),
        ("xfs: 3 cuts", 1, False),
        ("[  PASSED  ] 0 tests.", 0, False),
        ("LEFT OUT: no loop devices", 0, False),
        ("ext4: 3 cuts\nLEFT OUT: no mkfs.xfs", 0, False),
    ],
)
def test_status_0_alone_is_not_passed(text: str, status: int, passed: bool) -> None:
    found = carried_out(r"\w+: \d+ cuts|LEFT OUT.*", text, status)
    assert found[0] is passed
    assert found[1] == [line for line in text.splitlines() if not line.startswith("[")]


def test_what_a_check_leaves_out_by_design_is_nothing_missing() -> None:
    (race,) = (run for run in torture.RUNS if run.name == "race")
    text = "LEFT OUT: it is a race, which tsan would report\n9 sessions, 3 fences"
    assert carried_out(race.figures, text) == (True, ["9 sessions, 3 fences"])


def test_torn_captures_that_went_well_are_found() -> None:
    (torn,) = (run for run in torture.RUNS if run.name == "torn")
    words = {writer: {"reported": 100} for writer in torn_capture.WRITERS}
    text = torn_capture.describe(dict.fromkeys(torn_capture.PHASES, words))
    assert len(re.findall(torn.figures, text)) == len(words)


def test_every_run_carries_the_commit_at_which_the_first_began(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commits = iter(["a1b2c3d", "a1b2c3d+"])  # the first run's results change the tree
    program = (sys.executable, "-c", "print('found')")
    monkeypatch.setattr(torture, "commit", lambda: next(commits))
    monkeypatch.setattr(torture, "RUNS", [torture.Run(n, "", program, "found") for n in "ab"])
    monkeypatch.setattr(torture, "JSON", tmp_path / "torture.json")
    monkeypatch.setattr(torture, "TABLE", tmp_path / "torture.md")
    assert torture.main(["--only", "a", "b"]) == 0
    assert [each["commit"] for each in torture.stored().values()] == ["a1b2c3d", "a1b2c3d"]
