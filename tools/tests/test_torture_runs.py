"""A long run has passed only if it reports its findings, and left nothing out."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import torture
import torture_bounds
import torture_parts
from tests.chaos import kills
from tests.e2e import sample, soak, torn_capture
from tests.faults import block_device


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


def run_named(name: str) -> torture.Run:
    (found,) = (run for run in torture.RUNS if run.name == name)
    return found


def test_no_line_is_dropped_in_silence() -> None:
    lines = [f"{n} failures of reads" for n in (*range(17), 3)]
    assert carried_out(run_named("errors").figures, "\n".join(lines)) == (True, lines)
    many = [f"{n} failures" for n in range(torture.FOUND_MAX + 3)]
    assert torture.kept(many) == [*many[: torture.FOUND_MAX], "and 3 lines more"]
    assert torture.kept(["LEFT OUT: x", "a", "LEFT OUT: x"]) == ["a", "LEFT OUT: x"]


def test_what_grew_in_a_soak_is_found() -> None:
    curve = [sample.Sample(saves, 1, 2, 3, 4, 5) for saves in range(9)]
    one = soak.Soak("window", 8, {"durable": 8}, curve=curve, restored="equal")
    text = "\n\n".join(map(soak.describe, [one, one]))
    found = re.findall(run_named("soak").figures, text)
    assert len([line for line in found if "growth" in line]) == 2 * len(soak.GROWTH_MAX)
    assert len(found) == 2 * (len(soak.GROWTH_MAX) + 2)


def test_what_was_killed_is_found() -> None:
    tally = kills.Tally(1, left_out=["part.complete: no io_uring"])
    tally.at_points["a random moment"] = 4
    found = re.findall(run_named("kills").figures, kills.describe(tally))
    assert found == kills.describe(tally).splitlines()


def test_a_run_that_was_never_recorded_has_a_row_that_says_so() -> None:
    (result,) = [torture.carry_out(torture.Run("crash", "", ("true",), "x"), "a1b2c3d")]
    rows = torture.table({"crash": result}, {}).splitlines()[-len(torture.RUNS) :]
    assert [row.split(" | ")[0] for row in rows] == [f"| {run.name}" for run in torture.RUNS]
    never = [row for row in rows if "**never recorded**" in row]
    assert len(never) == len(torture.RUNS) - 1


def test_a_run_without_an_end_has_failed() -> None:
    """Processes that it has started die with it."""
    program = (
        "import subprocess, sys, time; print('3 cuts', flush=True);"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    run = torture.Run("x", "", (sys.executable, "-c", program), r"\d+ cuts|\d+", seconds_max=2)
    result = torture.carry_out(run, "a1b2c3d")
    assert not result["passed"]
    cuts, child, end = result["found"]
    assert (cuts, end) == ("3 cuts", "NO END after 2 s")
    until = time.monotonic() + 60
    while is_there(int(child)):
        assert time.monotonic() < until, "what it has started lives on"
        time.sleep(0.01)


def is_there(process: int) -> bool:
    """Whether the process lives: it is not a zombie that waits for its parent."""
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_single_bits_are_flipped_a_hundred_thousand_times() -> None:
    """Half of the damages are single bits (tests/corruption/damage.h)."""
    assert int(run_named("corruption").environment["DEEPFREEZE_DAMAGES"]) >= 205_000


def test_each_variable_that_makes_a_test_longer_is_one_of_a_run() -> None:
    page = (torture.ROOT / "docs/operations.md").read_text()
    listed = page.partition("own long tests read")[2].partition("torture.md")[0]
    names = set(re.findall(r"`(DEEPFREEZE_\w+)`", listed))
    others = {name for name in names if name.endswith("_SEED")} | {"DEEPFREEZE_ONLY_DIFFERENCES"}
    used = {name for run in torture.RUNS for name in run.environment}
    assert names - others == {name for name in used if name.startswith("DEEPFREEZE_")}


def test_every_run_carries_the_commit_at_which_the_first_began(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commits = iter(["a1b2c3d", "a1b2c3d+"])  # the first run's results change the tree
    program = (sys.executable, "-c", "print('found')")
    monkeypatch.setattr(torture, "commit", lambda: next(commits))
    monkeypatch.setattr(torture, "RUNS", [torture.Run(n, "", program, "found") for n in "ab"])
    monkeypatch.setattr(torture, "JSON", tmp_path / "torture.json")
    monkeypatch.setattr(torture, "TABLE", tmp_path / "torture.md")
    (tmp_path / "guarantees.md").write_text(f"{torture_bounds.BEGIN}\n{torture_bounds.END}")
    monkeypatch.setattr(torture, "GUARANTEES", tmp_path / "guarantees.md")
    assert torture.main(["--only", "a", "b"]) == 0
    assert [each["commit"] for each in torture.stored().values()] == ["a1b2c3d", "a1b2c3d"]


def result_of(found: list[str], *, passed: bool = True) -> dict[str, Any]:
    return {"found": found, "passed": passed, "date": "2026-11-25", "commit": "a1b2c3d"}


def test_trials_are_counted_and_bound_the_rate() -> None:
    rows = torture_bounds.table(
        {
            "crash": result_of(["500 states after power cuts in 3 lives", "500 states after"]),
            "errors": result_of(["30 failures of operations, 20 of reads", "5 operations carried"]),
            "block_device": result_of(
                ["block device: 3 errors, 5 read errors, 2 stall, 9 steps, 1 lying, 1 x"]
            ),
            "audit": result_of(["audit: 100 of 100 flipped bits"], passed=False),
        }
    )
    tail = "2026-11-25 | a1b2c3d |"
    assert f"`crash` | 1,000 | 3.0e-03 | {tail}" in rows
    assert f"`errors` | 55 | 5.5e-02 | {tail}" in rows
    assert f"`block_device` | 11 | 2.7e-01 | {tail}" in rows
    assert f"`audit` | **failed** | | {tail}" in rows
    assert "`kills` | **never recorded** | | | |" in rows


def test_every_run_of_a_promise_is_one_of_the_long_runs() -> None:
    assert {each.run for each in torture_bounds.ALL} <= {run.name for run in torture.RUNS}


def test_the_page_has_the_trials_as_they_are_recorded() -> None:
    page = torture.GUARANTEES.read_text()
    assert torture_bounds.written_into(page, torture.stored()) == page
    now = torture.table(torture.stored(), torture_parts.recorded()).splitlines()
    then = torture.TABLE.read_text().splitlines()
    # Rows of runs that are done in parts belong to the sources of that time.
    assert [line for line in now if ", in parts |" not in line] == [
        line for line in then if ", in parts |" not in line
    ]


def test_what_was_done_in_parts_has_passed_where_each_part_has() -> None:
    target = {"executions": 7, "minutes": 30.1, "edges": 3, "last": "2026-11-25"}
    broken = {**target, "executions": 0, "minutes": 0}
    assert torture_parts.fuzz({"json": target}, {"json"})["passed"]
    assert not torture_parts.fuzz({"json": target, "tree": broken}, {"json", "tree"})["passed"]
    assert not torture_parts.fuzz({"json": target}, {"json", "tree"})["passed"]
    assert not torture_parts.fuzz({"json": broken, "gone": target}, {"json"})["passed"]
    one, two = Counter({("a.cc", "x"): 1}), Counter({("a.cc", "x"): 2})
    assert torture_parts.left_out(one, one, "")["passed"]
    assert torture_parts.left_out(two, one, "")["passed"]
    assert not torture_parts.left_out(one, two, "")["passed"]
    assert not torture_parts.left_out(Counter(), one, "")["passed"]
    assert torture_parts.fuzz_targets() >= {"header", "manifest", "run", "export"}
    assert torture_parts.needed_sites().total() > 500


def test_a_row_says_that_it_was_done_in_parts() -> None:
    target = {"executions": 7, "minutes": 30.1, "edges": 3, "last": "2026-11-25"}
    parts = {"fuzz": torture_parts.fuzz({"json": target}, {"json"})}
    (row,) = (line for line in torture.table({}, parts).splitlines() if "| fuzz " in line)
    assert "| yes, in parts | 1 of 1 targets" in row
    whole = {"fuzz": result_of(["all"]) | {"what": "", "command": "", "seconds": 1}}
    assert "| yes | all | 1 s |" in torture.table(whole, parts)


def test_each_trial_on_a_disk_is_counted() -> None:
    """But for that of the disk itself."""
    (trials,) = (each for each in torture_bounds.ALL if each.run == "block_device")
    names = [scenario.__name__.replace("_", " ") for scenario, _, _ in block_device.SCENARIOS]
    assert "honest" in names
    line = (
        "block device: " + ", ".join(f"1 {name}" for name in names) + ", 9 failed saves; 0 faults"
    )
    assert torture_bounds.count(trials, [line]) == len(names) - 1
