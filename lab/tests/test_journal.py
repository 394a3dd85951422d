"""What was measured stays, whole cases only, and is never measured twice."""

import errno
import json
import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from lab.measure.case import Case, LeftOutError, Place, Plan, ToolError
from lab.measure.journal import (
    ROWS,
    Journal,
    JournalError,
    note_resumption,
    open_journal,
    read_about,
    read_journal,
)
from lab.measure.program import Environments
from lab.measure.row import Row, RowError, check, identity
from lab.measure.run import rows_of, run_all

PLAN = Plan(quick=True, seed=5)
MACHINE = {"cores": 2, "cpu": "a", "kernel": "b", "commit": "c", "date": "today"}


LAST: dict[Path, Journal] = {}


def opened(directory: Path, plan: Plan = PLAN) -> Journal:
    """As by a new process: the last one has ended."""
    if directory in LAST:
        LAST[directory].close()
    LAST[directory] = open_journal(directory, plan, MACHINE)
    return LAST[directory]


def row(case: str, **more: str | int) -> Row:
    return {"experiment": "cost", "case": case, "status": "ok", **more}


def case(name: str, *rows: Row, error: Exception | None = None) -> Case:
    def work(place: Place) -> Iterable[Row]:
        (place.directory / "left").write_text("something")
        yield from rows
        if error is not None:
            raise error

    return Case("cost", name, 1.0, {"writer": name}, work)


def carried_out(one: Case, tmp_path: Path, **reasons: str) -> list[Row]:
    return rows_of(one, Environments(dict(reasons)), tmp_path, PLAN)


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.append([row("a", repetition=0), row("a", repetition=1)])
    again = opened(tmp_path)
    assert again.rows == journal.rows
    assert again.finished() == {"cost/a"}


@pytest.mark.parametrize("cut", range(2, 90, 11))
def test_a_case_that_was_torn_is_as_if_it_had_never_been(tmp_path: Path, cut: int) -> None:
    journal = opened(tmp_path)
    journal.append([row("a")])
    journal.append([row("b", repetition=0), row("b", repetition=1)])
    path = tmp_path / ROWS
    os.truncate(path, path.stat().st_size - cut)
    again = opened(tmp_path)
    assert again.finished() == {"cost/a"}
    again.append([row("b")])
    assert opened(tmp_path).finished() == {"cost/a", "cost/b"}


def test_an_append_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path)
    journal.append([row("a")])
    before = (tmp_path / ROWS).read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        journal.append([row("b")])
    assert (tmp_path / ROWS).read_bytes() == before
    assert journal.finished() == {"cost/a"}


@pytest.mark.parametrize("plan", [Plan(quick=False, seed=5), Plan(quick=True, seed=6)])
def test_another_plan_does_not_mix_in(tmp_path: Path, plan: Plan) -> None:
    opened(tmp_path)
    with pytest.raises(JournalError, match="choose another --out"):
        opened(tmp_path, plan)


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.append([row("a")])
    with pytest.raises(JournalError, match="another study is writing there"):
        open_journal(tmp_path, PLAN, MACHINE)
    with (tmp_path / ROWS).open("a") as file:
        file.write('{"half')  # as the writer may just have come to
    before = (tmp_path / ROWS).read_bytes()
    assert [one["case"] for one in read_journal(tmp_path).rows] == ["a"]
    assert (tmp_path / ROWS).read_bytes() == before
    journal.close()
    open_journal(tmp_path, PLAN, MACHINE).close()


def test_where_nothing_can_be_locked_no_other_study_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.raises(OSError, match="No locks available"):
        opened(tmp_path)


def test_what_goes_on_elsewhere_says_so(tmp_path: Path) -> None:
    opened(tmp_path)
    assert note_resumption(tmp_path, MACHINE) == []
    assert note_resumption(tmp_path, {**MACHINE, "commit": "d", "date": "later"}) == ["commit"]
    resumed = read_about(tmp_path)["resumed"]
    assert [one["commit"] for one in resumed] == ["c", "d"]
    assert resumed[1]["date"] == "later"
    assert read_about(tmp_path)["machine"] == MACHINE


def test_a_row_tells_by_which_commit_and_on_which_processor_it_was_made(tmp_path: Path) -> None:
    opened(tmp_path).append([row("a")])
    LAST.pop(tmp_path).close()
    with closing(open_journal(tmp_path, PLAN, {**MACHINE, "commit": "d", "cpu": "e"})) as later:
        later.append([row("b")])
        assert [(one["commit"], one["cpu"]) for one in later.rows] == [("c", "a"), ("d", "e")]


def test_what_is_no_study_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"format": 99}')
    with pytest.raises(JournalError, match="format 99"):
        opened(tmp_path)


def test_failures_alone_are_forgotten(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.append([row("a")])
    journal.append([row("b"), {**row("b"), "status": "failed", "reason": "it broke"}])
    assert journal.forget_failures() == 1
    assert opened(tmp_path).finished() == {"cost/a"}


@pytest.mark.parametrize("broken", [
    {"status": "ok", "colour": "red"}, {"status": "fine"}, {"status": "failed"},
])  # fmt: skip
def test_a_row_that_nobody_could_read_is_refused(broken: Row) -> None:
    with pytest.raises(RowError):
        check(broken)


def test_repetitions_are_of_one_identity() -> None:
    assert identity(row("a", repetition=0)) == identity(row("b", repetition=1))
    assert identity(row("a", writer="x")) != identity(row("a", writer="y"))


@pytest.mark.parametrize(("error", "status"), [
    (ValueError("broken"), "failed"),
    (LeftOutError("no root"), "left out"),
    (TimeoutError("took more than 5 s"), "timed out"),
    (OSError(errno.ENOSPC, "No space left on device"), "no space"),
    (ToolError("OSError: [Errno 28] No space left on device"), "no space"),
    (ToolError("ModuleNotFoundError: No module named 'chainer'"), "not installed"),
    (ToolError("it crashed"), "failed"),
])  # fmt: skip
def test_whatever_happens_is_a_row(tmp_path: Path, error: Exception, status: str) -> None:
    first, second = carried_out(case("w", {"repetition": 0}, error=error), tmp_path)
    assert (first["status"], second["status"]) == ("ok", status)
    assert second["writer"] == "w"
    assert str(second["reason"])
    assert list(tmp_path.iterdir()) == []


def test_no_row_is_a_failure(tmp_path: Path) -> None:
    (only,) = carried_out(case("w"), tmp_path)
    assert (only["status"], only["reason"]) == ("failed", "the experiment gave no row")


def test_an_error_without_words_is_a_row_with_its_name(tmp_path: Path) -> None:
    (found,) = carried_out(case("a", error=TimeoutError()), tmp_path)
    assert found["reason"] == "TimeoutError"


def test_a_missing_environment_is_a_row(tmp_path: Path) -> None:
    wanted = Case("cost", "w", 1.0, {}, lambda _: [{}], environment="frameworks")
    (only,) = carried_out(wanted, tmp_path, frameworks="no network")
    assert (only["status"], only["reason"]) == ("not installed", "no network")


def test_an_interrupted_study_goes_on(tmp_path: Path) -> None:
    done: list[str] = []

    def counted(name: str, interrupts: bool = False) -> Case:
        def work(_: Place) -> Iterable[Row]:
            done.append(name)
            if interrupts and done.count(name) == 1:
                raise KeyboardInterrupt
            yield {}

        return Case("cost", name, 1.0, {}, work)

    cases = [counted("a"), counted("b", interrupts=True), counted("c")]
    with pytest.raises(KeyboardInterrupt):
        run_all(cases, opened(tmp_path), Environments(), tmp_path, PLAN)
    run_all(cases, opened(tmp_path), Environments(), tmp_path, PLAN)
    assert done == ["a", "b", "b", "c"]
    rows = [json.loads(line)["case"] for line in (tmp_path / ROWS).read_text().splitlines()]
    assert rows == ["a", "b", "c"]
