"""Each kind of fault a few times; the modules' own command lines do them by the thousand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import block_device, block_disk, disk_stalls, far_place, tier_outage, trainer

ROOT = Path(__file__).resolve().parents[2]


def found_by(*command: str) -> dict[str, Any]:
    """In a process of its own: it makes mounts, control groups and children."""
    done = subprocess.run(
        [sys.executable, "-m", *command, "--json"], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    if "left_out" in found:
        pytest.skip(f"LEFT OUT: {found['left_out']}")
    return found


def test_a_system_call_that_fails_or_is_the_last_one() -> None:
    found = found_by("tests.faults.system_calls", "--quick")
    assert found["faults"] == [], found["seed"]
    assert found["hits"] > 60


def test_a_disk_that_fails_stalls_is_slow_or_lies() -> None:
    found = found_by("tests.faults.block_device", "--quick")
    assert found["faults"] == [], found["seed"]
    tried = found["tried"]
    quick = {scenario.__name__ for scenario, times, _ in block_device.SCENARIOS if times}
    assert quick <= tried.keys()
    assert tried["lost blocks"] > 0
    assert tried["skipped saves"] > 0
    assert tried["failed saves"] > 0
    assert tried["writes that the disk takes"] > 0
    assert tried["writes that it refuses"] > 0
    assert tried["saves failed with EIO"] > 0
    assert tried["buffered saves failed with EIO"] > 0
    assert tried["saves failed with EROFS"] > 0
    assert tried["refused for reads"] > 0
    assert tried["who stood still"] > 0
    longest = found["longest_save"]
    assert longest["3 s stall"] <= disk_stalls.SAVE_SECONDS_MAX
    assert longest["1 MB/s"] <= disk_stalls.SAVE_SECONDS_MAX
    assert longest["3 s stall, blocking by design"] > disk_stalls.SAVE_SECONDS_MAX  # it is timed


def test_the_long_run_has_a_stall_of_a_minute() -> None:
    assert disk_stalls.LONG_STALL_SECONDS >= 60
    often = {scenario.__name__: times for scenario, _, times in block_device.SCENARIOS}
    assert often["long_stall"] > 0
    assert often["long_stall_of_one_who_waits"] > 0


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (("stall_milliseconds_max 900", "closed"), ""),
        (("stall_milliseconds_max 1001", "closed"), "a save() took 1.001 s"),
        (("saved 7",), "did not say"),
    ],
)
def test_a_save_that_holds_the_trainer_up_is_a_fault(lines: tuple[str, ...], fault: str) -> None:
    found = disk_stalls.stall_faults(trainer.Said(lines, 0))
    assert [each for each in found if fault in each] == found
    assert bool(found) == bool(fault)


def test_a_save_that_does_not_wait_where_it_should_is_a_fault() -> None:
    said = trainer.Said(("stall_milliseconds_max 2", "closed"), 0)
    assert disk_stalls.stall_faults(said, least=2.5, most=4) != []


def test_a_machine_without_what_a_disk_takes_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(block_disk, "DEVICES", (tmp_path / "loop-control",))
    assert block_disk.missing() in (
        f"no access to {tmp_path / 'loop-control'}",
        "it takes root",
    )
    monkeypatch.setattr(block_disk, "PROGRAMS", ("sh", "nbdfuse-2"))
    assert block_disk.missing() == "not installed: nbdfuse-2"


def test_a_farther_tier_that_is_away() -> None:
    found = found_by("tests.faults.tier_outage", "--seconds", "1")
    assert found["faults"] == []
    assert [outage["way"] for outage in found["outages"]] == list(far_place.WAYS)
    assert found["ended"]["left_out"] > 0


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({}, ""),
        ({"during": [{"attempts": 26}]}, "26 checkpoints"),
        ({"order": [7, 8, 9]}, "newest first"),
        ({"order": [9]}, "only [9]"),
        ({"warnings": 2}, "2 warnings"),
        ({"warnings_of_deletions": 2}, "2 of deletions"),
    ],
)
def test_what_an_outage_must_not_do_is_a_fault(changed: dict[str, Any], fault: str) -> None:
    fine = {"during": [{"attempts": 25}], "order": [9, 8, 7], "warnings": 1}
    found = list(tier_outage.faults_of(tier_outage.Outage("moved", **{**fine, **changed})))
    assert [each for each in found if fault in each] == found
    assert bool(found) == bool(fault)


def test_the_kernel_kills_for_want_of_memory() -> None:
    found = found_by("tests.faults.memory", "--kills", "2")
    assert found["faults"] == [], found["seed"]


def test_waiting_for_a_word_ends_with_the_program(tmp_path: Path) -> None:
    with trainer.Running("save", tmp_path / "run", "2") as running:
        running.must_say("durable", 2)
        assert not running.wait_for("durable", 3)
        with pytest.raises(trainer.EndedError, match="closed"):
            running.must_say("durable", 3)


def test_what_is_missing_wrong_or_late_is_a_fault(tmp_path: Path) -> None:
    """The check itself can fail."""
    run = tmp_path / "run"
    assert trainer.call("save", run, "3").newest_durable == 3
    assert trainer.faults_of(run, 3) == []
    assert trainer.faults_of(run, 4) == ["step 4 was durable, the newest is 3"]
    newest = max(run.glob("*/*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
    with newest.open("r+b") as file:
        file.seek(-3, 2)
        last = file.read(1)
        file.seek(-3, 2)
        file.write(bytes([last[0] ^ 1]))
    assert any(each.startswith("bad 3") for each in trainer.faults_of(run, 3))
