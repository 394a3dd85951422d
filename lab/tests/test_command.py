"""The command: what it takes, what it refuses, and how it goes on."""

import errno
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from deepfreeze.base import studying
from lab import command, experiments
from lab.measure import machine
from lab.measure.case import Case, Experiment, LeftOutError, Place, Plan
from lab.measure.journal import open_journal, read_about
from lab.measure.row import Row

ROOT = Path(__file__).resolve().parents[2]


def work(place: Place) -> Iterable[Row]:
    yield {"verdict": f"quick={place.plan.quick} seed={place.plan.seed}"}


def broken(_: Place) -> Iterable[Row]:
    raise ValueError("broken")


def cases(plan: Plan) -> Iterator[Case]:
    yield Case("cost", "good", 1.0, {"writer": "good"}, work)
    yield Case("cost", "bad", 60.0, {"writer": "bad"}, broken)
    yield Case("cost", "model", 1.0, {"writer": "good", "simulated": True}, work)


@pytest.fixture(autouse=True)
def one_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Experiment("cost", "Cost", "What does it cost?", cases)
    monkeypatch.setattr(experiments, "load", lambda _: one)
    monkeypatch.setattr(experiments, "absent", lambda *_: ())


def call(tmp_path: Path, *words: str) -> int:
    return command.main([*words, "--out", str(tmp_path / "out")])


def rows(tmp_path: Path) -> list[Row]:
    return [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl").read_text().splitlines()]


def test_every_case_has_a_row_and_the_report_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(tmp_path, "cost", "--quick", "--seed", "7") == 0
    assert [row["status"] for row in rows(tmp_path)] == ["ok", "failed", "ok"]
    assert rows(tmp_path)[0]["verdict"] == "quick=True seed=7"
    shown = capsys.readouterr().out
    assert "3 rows: 2 ok, 1 failed" in shown
    assert (tmp_path / "out" / "report.html").exists()


def test_a_second_call_measures_nothing_anew_unless_asked(tmp_path: Path) -> None:
    call(tmp_path, "cost", "--quick")
    before = rows(tmp_path)
    assert call(tmp_path, "cost", "--quick") == 0
    assert rows(tmp_path) == before
    assert call(tmp_path, "cost", "--quick", "--retry") == 0
    again = rows(tmp_path)
    assert [row["case"] for row in again] == ["good", "model", "bad"]
    assert again[:2] == [before[0], before[2]]


def test_the_model_alone(tmp_path: Path) -> None:
    assert call(tmp_path, "cost", "--simulate") == 0
    assert [row["case"] for row in rows(tmp_path)] == ["model"]


def modelled(place: Place) -> Iterable[Row]:
    """As scale's: of what was measured before it."""
    found = [row for row in place.measured if row["status"] == "ok" and not row.get("simulated")]
    if not found:
        raise LeftOutError("nothing to compare with")
    yield {"verdict": f"of {len(found)}"}


def derived_cases(plan: Plan) -> Iterator[Case]:
    yield Case("cost", "good", 1.0, {"writer": "good"}, work)
    yield Case("cost", "model", 1.0, {"simulated": True}, modelled, derived=True)
    yield Case("cost", "nodes", 1.0, {"simulated": True}, work)


def test_what_is_derived_is_made_anew_once_there_is_something_to_derive_it_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Experiment("cost", "Cost", "What does it cost?", derived_cases)
    monkeypatch.setattr(experiments, "load", lambda _: one)
    call(tmp_path, "cost", "--simulate")
    assert [row["status"] for row in rows(tmp_path)] == ["left out", "ok"]
    call(tmp_path, "cost")
    after = {row["case"]: row.get("verdict") for row in rows(tmp_path)}
    assert after["model"] == "of 1"
    assert list(after) == ["nodes", "good", "model"]
    before = rows(tmp_path)
    call(tmp_path, "cost")
    assert rows(tmp_path) == before


def test_what_an_older_study_never_derived_is_made_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Experiment("cost", "Cost", "What does it cost?", derived_cases)
    monkeypatch.setattr(experiments, "load", lambda _: one)
    call(tmp_path, "cost", "--simulate")
    with monkeypatch.context() as as_it_was:
        as_it_was.setattr("lab.measure.journal.Journal.forget_outdated", lambda *_: None)
        call(tmp_path, "cost")
    assert [row["status"] for row in rows(tmp_path)] == ["left out", "ok", "ok"]
    call(tmp_path, "cost", "--simulate")
    assert {row["case"]: row.get("verdict") for row in rows(tmp_path)}["model"] == "of 1"


def test_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path, "cost", "--list") == 0
    assert "3 cases" in capsys.readouterr().out
    assert call(tmp_path, "cost", "--list", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["experiments"][0]["cases"] == 3
    assert not (tmp_path / "out").exists()


def test_an_unknown_experiment_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        call(tmp_path, "costs")
    assert ended.value.code == 2
    assert "no experiment costs: there are cost, formats" in capsys.readouterr().err


def test_other_options_in_one_directory_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(tmp_path, "cost", "--quick", "--seed", "7")
    assert call(tmp_path, "cost", "--seed", "7") == 2
    assert "choose another --out" in capsys.readouterr().err


def test_where_rows_can_not_be_kept_it_stops_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lab.measure.journal.Journal.append", full)
    assert call(tmp_path, "cost") == 3
    assert "No space left on device; what is missing is run" in capsys.readouterr().err


def on(monkeypatch: pytest.MonkeyPatch, commit: str) -> None:
    described = {"date": "today", "cpu": "a", "kernel": "b", "commit": commit}
    monkeypatch.setattr(machine, "describe_study", lambda _: described)


def resumed(tmp_path: Path) -> list[str]:
    return [one["commit"] for one in read_about(tmp_path / "out").get("resumed", [])]


def test_what_goes_on_by_another_commit_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on(monkeypatch, "first")
    call(tmp_path, "cost", "--simulate")
    assert resumed(tmp_path) == []
    on(monkeypatch, "second")
    for _ in range(2):  # nothing is left for the other
        assert call(tmp_path, "cost") == 0
        assert resumed(tmp_path) == ["second"]
    assert capsys.readouterr().err.count("goes on with another commit") == 1


def test_a_study_that_came_to_no_row_goes_on_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    on(monkeypatch, "first")
    with monkeypatch.context() as early:
        early.setattr("lab.measure.journal.Journal.append", interrupted)
        assert call(tmp_path, "cost") == 130
    on(monkeypatch, "second")
    call(tmp_path, "cost")
    assert resumed(tmp_path) == ["second"]


def test_beside_a_running_study_only_a_report_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(tmp_path, "cost", "--seed", "7")
    running = open_journal(tmp_path / "out", Plan(quick=False, seed=7), {})
    with running.path.open("a") as file:
        file.write('{"half')
    before = running.path.read_bytes()
    assert call(tmp_path, "cost") == 2
    assert "another study is writing there" in capsys.readouterr().err
    assert call(tmp_path, "--report") == 0
    assert running.path.read_bytes() == before
    running.close()
    assert call(tmp_path, "cost") == 0


def test_the_verb_finds_its_tree() -> None:
    """The environment's Python, in a directory that has a study of its own."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "deepfreeze", "study", "--help"],
        capture_output=True, text=True, check=False, cwd=ROOT / "examples",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "usage: deepfreeze study" in done.stdout


@pytest.mark.parametrize("words", [["--source", "/nowhere"], ["--source"]])
def test_without_its_tree_the_verb_says_what_to_do(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "prefix", "/nowhere/.venv")
    assert studying.main(words) == 2
    assert "source tree" in capsys.readouterr().err
