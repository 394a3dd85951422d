"""What kills, power cuts and full disks leave is told as it was, and so is what can't be tried."""

import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest

from lab.experiments import crash, faults
from lab.faults import calls, shortage, state
from lab.faults.moments import Calls
from lab.faults.subject import Trial
from lab.measure.case import Case, Place, Plan
from lab.measure.program import Environments
from lab.measure.row import LEFT_OUT, OK, Row, check
from lab.measure.run import rows_of
from lab.writers.menu import MODULES
from lab.writers.menu import VICTIMS as MENU
from lab.writers.tried import QUICK_REASON

PLAN = Plan(quick=True, seed=5)
KILLED, FULL = "killed in the save", "no space left in the save"


WITHOUT_VICTIM = {
    "orbax-async", "torchsnapshot-async", "torch-checkpointing", "df-jax-latency",
    "df-tensorflow-latency", "df-keras-latency", "df-chainer-latency", "dcp-async-reused",
    "df-quarter", "chainer-simple", "fastpersist",
}  # fmt: skip


def run(case: Case, place: Path) -> dict[str, Row]:
    rows = [check(row) for row in rows_of(case, Environments(), place, PLAN)]
    return {str(row["fault"]): row for row in rows}


def the_case(name: str) -> Case:
    (found,) = (one for one in crash.cases(PLAN) if one.about["writer"] == name)
    return found


@pytest.mark.parametrize("quick", [True, False])
def test_every_writer_is_there_whatever_the_preset(quick: bool) -> None:
    cases = list(crash.cases(Plan(quick, seed=5)))
    assert {one.about["writer"] for one in cases} == {entry.name for entry in MENU} | WITHOUT_VICTIM
    tried = [one for one in cases if not one.name.startswith("left out")]
    assert {one.about["framework"] for one in tried} == set(MODULES.values())
    omitted = len(crash.QUICK_LEFT_OUT) if quick else 0
    assert len(tried) == len(MENU) - omitted
    assert len({one.key for one in cases}) == len(cases)


def test_a_full_study_has_both_file_systems_and_cuts_in_the_save() -> None:
    names = [fault.name for fault in crash.faults_with(crash.FULL)]
    assert names == [
        KILLED, "power cut after the save, ext4", "power cut after the save, xfs",
        "power cut in the save, ext4", "power cut in the save, xfs", FULL,
    ]  # fmt: skip
    assert len(list(crash.faults_with(crash.QUICK))) == 3


def test_faults_that_quick_leaves_out_are_named() -> None:
    assert crash.not_with(crash.QUICK) == [
        "power cut after the save, xfs", "power cut in the save, ext4",
        "power cut in the save, xfs",
    ]  # fmt: skip
    assert crash.not_with(crash.FULL) == []


def test_every_saver_that_is_measured_is_tried_or_has_a_reason(tmp_path: Path) -> None:
    assert set(WITHOUT_VICTIM) == set(faults.WRITERS)
    for case in crash.cases(PLAN):
        if case.name.startswith("left out"):
            (row,) = rows_of(case, Environments(), tmp_path, PLAN)
            assert check(row)["status"] == LEFT_OUT


def test_what_comes_in_a_save_comes_at_a_call_that_a_machine_must_be_able_to_hold() -> None:
    for fault in crash.faults_with(crash.FULL):
        assert isinstance(fault.trials, partial)
        at_a_call = fault.trials.keywords.get("measure") == Calls.measure
        assert at_a_call == (crash.CALLS in fault.needs)
        assert at_a_call == ("in the save" in fault.name and fault.name != FULL)


@pytest.mark.parametrize(
    ("ends", "interrupted", "done"),
    [
        ([state.OF_NEWER, state.OF_OLDER, state.BY_HAND], crash.KEEPS, None),
        ([state.OF_OLDER, state.LOST], crash.LOSES, None),
        ([state.KEPT, state.WRONG], crash.LOSES, crash.LOSES_NEWEST),
        ([state.KEPT, state.KEPT], None, crash.KEEPS_NEWEST),
        ([state.KEPT, state.LOST], None, crash.LOSES_NEWEST),
    ],
)
def test_a_verdict_is_the_worst_of_all_moments(
    ends: list[str], interrupted: str | None, done: str | None
) -> None:
    trials = [Trial(one, {"left": "older", "error": "ValueError: x"}) for one in ends]
    for rows_of_trials, verdict in ((crash.interrupted, interrupted), (crash.done, done)):
        row = rows_of_trials(trials)
        assert verdict in (None, row["verdict"])
        assert row["trials"] == len(ends)
        assert (crash.TORN in str(row.get("reason"))) == (state.WRONG in ends)
        detail = json.loads(str(row["detail"]))
        assert sum(detail["outcomes"].values()) == len(ends)
        assert detail["errors"] == {"ValueError": len(ends)}


@pytest.mark.parametrize(
    ("came", "left", "outcome", "later", "verdict", "columns"),
    [
        (shortage.REFUSED, "older", state.OF_OLDER, True,
         "an error; the older one left; the next save works", (1, 0, 1, 0, 0, 0)),
        (shortage.REFUSED, "nothing", state.LOST, True,
         "an error; both lost; the next save works", (1, 0, 0, 1, 0, 0)),
        (shortage.ACKNOWLEDGED, "older", state.LOST, False,
         "no error; the older one left; the next save fails", (0, 1, 1, 1, 0, 0)),
        (shortage.ACKNOWLEDGED, "newer", state.KEPT, True,
         "no error; the newest there; the next save works", (0, 0, 1, 0, 0, 0)),
        (shortage.ENDED, "nothing", state.LOST, False,
         "the process dies; both lost; the next save fails", (0, 0, 0, 1, 0, 1)),
        (shortage.HANGS, "wrong", state.WRONG, False,
         "it hangs; a state that never was, without an error; the next save fails",
         (0, 0, 0, 0, 1, 1)),
    ],
)  # fmt: skip
def test_a_full_disk_gives_exact_columns(
    came: str, left: str, outcome: str, later: bool, verdict: str, columns: tuple[int, ...]
) -> None:
    detail = {"came": came, "left": left, "later": later, "refusal": "x", "later_refusal": ""}
    row = crash.full([Trial(outcome, detail)])
    assert row["verdict"] == verdict
    names = ("found", "silent", "usable", "lost", "mixed", "crashed")
    assert tuple(row[name] for name in names) == columns


def test_what_the_machine_lacks_is_left_out_and_the_rest_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = {"ext4": "unshare: Operation not permitted", "xfs": "mkfs.xfs is not installed"}
    monkeypatch.setattr(crash, "what_is_missing", lambda *_: reasons)
    monkeypatch.setattr(crash, "QUICK", dataclasses.replace(crash.QUICK, kills=2))
    found = run(the_case("torch-save-fsync"), tmp_path)
    assert (found[KILLED]["status"], found[KILLED]["verdict"]) == (OK, crash.KEEPS)
    assert found[FULL]["status"] == LEFT_OUT
    assert found[FULL]["reason"] == reasons["xfs"]
    assert found["power cut after the save, ext4"]["reason"] == reasons["ext4"]
    assert [found[name]["reason"] for name in crash.not_with(crash.QUICK)] == [QUICK_REASON] * 3


def test_a_machine_where_no_call_can_be_held_leaves_out_what_needs_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = {"ext4": "unshare: Operation not permitted", "xfs": "mkfs.xfs is not installed"}
    monkeypatch.setattr(crash, "what_is_missing", lambda *_: reasons)
    monkeypatch.setattr(calls, "missing", lambda: "libseccomp is not installed")
    monkeypatch.setattr(crash, "QUICK", crash.FULL)
    found = run(the_case("torch-save-fsync"), tmp_path)
    assert {row["status"] for row in found.values()} == {LEFT_OUT}
    assert found[KILLED]["reason"] == "libseccomp is not installed"
    assert found["power cut in the save, ext4"]["reason"] == reasons["ext4"]


def test_a_narrow_part_of_a_save_is_met_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the twenty calls of dcp with few tensors those over the only data that there is."""
    monkeypatch.setattr(crash, "what_is_missing", lambda *_: {"ext4": "slow", "xfs": "slow"})
    rows = [run(the_case("dcp-few"), tmp_path)[KILLED] for _ in range(2)]
    assert rows[0]["verdict"] == crash.LOSES
    for name in ("verdict", "trials", "detail"):
        assert rows[0][name] == rows[1][name]
    before = json.loads(str(rows[0]["detail"]))["lost_before"]
    assert "write checkpoint/__0_0.distcp" in before


def test_the_machine_is_asked_before_a_process_is_started(tmp_path: Path) -> None:
    asked: list[Place] = []
    nurseries = faults.ground("crash", PLAN, MENU[:2], asked.append).nurseries
    place = Place(tmp_path, PLAN)
    for entry in MENU[:2]:
        with nurseries.of(entry, place):
            assert len(asked) == 1, "one process for both"


def test_deepfreeze_survives_and_names_the_full_disk(tmp_path: Path) -> None:
    found = run(the_case("df"), tmp_path)
    assert found[KILLED]["verdict"] == crash.KEEPS
    assert found[KILLED]["trials"] == crash.QUICK.kills
    cut, full = found["power cut after the save, ext4"], found[FULL]
    if LEFT_OUT in (cut["status"], full["status"]):
        pytest.skip(f"LEFT OUT: {cut.get('reason')} {full.get('reason')}")
    assert cut["verdict"] == crash.KEEPS_NEWEST
    assert full["verdict"] == "an error; the older one left; the next save works"
    assert str(full["reason"]).startswith("NoSpaceError")
    assert str(tmp_path) not in json.dumps(found)
