"""Every writer is damaged in every way, and the rows say what its load made of it."""

import dataclasses
import json
from pathlib import Path

import pytest

from lab.experiments import corruption, faults
from lab.faults import changes
from lab.faults.state import DETECTED, DIED, FELL_BACK, HARMLESS, HUNG, SILENT
from lab.faults.subject import Trial
from lab.measure.case import Case, Plan
from lab.measure.program import Environments
from lab.measure.row import COLUMNS, FAILED, NOT_INSTALLED, OK, Kind, Row, check
from lab.measure.run import rows_of
from lab.writers.menu import MODULES
from lab.writers.menu import VICTIMS as MENU
from lab.writers.menu import VICTIMS_BY_NAME as SAVERS

PLAN = Plan(quick=True, seed=5)
ALL = {entry.name for entry in MENU}


def run(case: Case, place: Path) -> list[Row]:
    return [check(row) for row in rows_of(case, Environments(), place, PLAN)]


def the_case(name: str) -> Case:
    (found,) = (one for one in corruption.cases(PLAN) if one.about["writer"] == name)
    return found


def tried(cases: list[Case]) -> list[Case]:
    return [one for one in cases if not one.name.startswith("left out")]


def test_every_writer_is_there_and_no_framework_is_left_out() -> None:
    known = ALL | set(faults.WRITERS)
    everything = list(corruption.cases(Plan(quick=False, seed=5)))
    assert {one.about["writer"] for one in everything} == known
    assert {one.about["writer"] for one in corruption.cases(PLAN)} == known
    full = {str(one.about["writer"]) for one in tried(everything)}
    quick = tried(list(corruption.cases(PLAN)))
    assert full == ALL - corruption.SAME_HERE
    assert {one.about["writer"] for one in quick} == full - corruption.SAME_FILES
    assert {one.about["framework"] for one in quick} == set(MODULES.values())
    assert len({one.key for one in quick}) == len(quick)
    again = tried(list(corruption.cases(PLAN)))
    assert [(one.key, one.about) for one in again] == [(one.key, one.about) for one in quick]


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ({DETECTED, HARMLESS}, "found"),
        ({FELL_BACK}, "found"),
        ({HARMLESS}, "harmless"),
        ({DETECTED, SILENT, DIED}, "silent"),
        ({DETECTED, DIED}, "the load crashes or hangs"),
        ({HUNG, HARMLESS}, "the load crashes or hangs"),
    ],
)
def test_a_verdict_is_the_worst_that_happened(outcomes: set[str], verdict: str) -> None:
    assert corruption.verdict(outcomes) == verdict


def test_a_row_counts_every_trial_once() -> None:
    ends = [DETECTED, FELL_BACK, SILENT, SILENT, HARMLESS, DIED, HUNG]
    trials = iter([Trial(one) for one in ends])

    class Specimen:
        def trial(self, *_: object) -> Trial:
            return next(trials)

    one, count = Specimen(), len(ends)
    row = corruption.row(one, changes.BIT, PLAN.random(), count, True)  # type: ignore[arg-type]
    counted = [row[name] for name in ("found", "silent", "harmless", "crashed", "trials")]
    assert counted == [2, 2, 1, 2, 7]
    assert row["verdict"] == "silent"
    trials = iter([Trial(one) for one in ends])
    row = corruption.row(one, changes.BIT, PLAN.random(), count, False)  # type: ignore[arg-type]
    assert set(row) == {"verdict", "trials", "detail"}, "places that no seed decides"
    assert json.loads(str(row["detail"]))["outcomes"][SILENT] == 2


def test_what_has_no_checksum_is_loaded_damaged_and_the_same_happens_again(tmp_path: Path) -> None:
    rows = run(the_case("torch-save"), tmp_path)
    found = {str(row["fault"]): row for row in rows}
    assert list(found) == list(changes.KINDS)
    assert all(row["status"] == OK and row["trials"] == 2 for row in rows)
    for kind, row in found.items():
        assert row["verdict"] == ("found" if kind.startswith("cut") else "silent"), kind
    assert "torch" in str(rows[0]["versions"])
    again = run(the_case("torch-save"), tmp_path)
    assert [exact(row) for row in again] == [exact(row) for row in rows]


def exact(row: Row) -> Row:
    kinds = (Kind.NAME, Kind.EXACT)
    return {name: value for name, value in row.items() if COLUMNS[name].kind in kinds}


def test_deepfreeze_finds_all(tmp_path: Path) -> None:
    rows = run(the_case("df"), tmp_path)
    assert {row["verdict"] for row in rows} == {"found"}
    assert [row["found"] for row in rows] == [2] * len(changes.KINDS)


def test_what_can_not_be_imported_is_not_installed(tmp_path: Path) -> None:
    entry = dataclasses.replace(SAVERS["torch-save"], imports=("no_such_library",))
    shared = faults.ground("corruption", PLAN, (entry,))
    (row,) = run(corruption.one_case(shared, entry, 1), tmp_path)
    assert row["status"] == NOT_INSTALLED
    assert "no_such_library" in str(row["reason"])


def test_a_writer_that_fails_undamaged_has_a_row_and_the_next_goes_on(tmp_path: Path) -> None:
    bad = dataclasses.replace(SAVERS["torch-save"], name="bad", kind="NoSuchClass")
    shared = faults.ground("corruption", PLAN, (bad, SAVERS["torch-save"]))
    (row,) = run(corruption.one_case(shared, bad, 1), tmp_path)
    assert row["status"] == FAILED
    assert "NoSuchClass" in str(row["reason"])
    nursery = shared.nurseries._nursery
    assert nursery is not None, "it serves the next"
    rows = run(corruption.one_case(shared, SAVERS["torch-save"], 1), tmp_path)
    assert {row["status"] for row in rows} == {OK}
    assert shared.nurseries._nursery is None, "nobody needs it any more"


def test_damage_that_has_no_place_is_a_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(changes.KINDS, changes.BIT, lambda *_: None)
    rows = run(the_case("torch-save"), tmp_path)
    assert (rows[0]["fault"], rows[0]["status"]) == (changes.BIT, FAILED)
    assert rows[0]["reason"] == "no such damage changes a byte of it"
    assert {row["status"] for row in rows[1:]} == {OK}
