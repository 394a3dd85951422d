"""The counts that `make test` ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

import run_tests
from run_tests import Outcome


@pytest.fixture(autouse=True)
def nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tests, "make_ahead", lambda _: None)


CASES = """<testsuite tests="5">
  <testcase name="good"/>
  <testcase name="fails"><failure message="1 != 2"/></testcase>
  <testcase name="dies"><error message="segmentation fault"/></testcase>
  <testcase name="left out"><skipped/></testcase>
  <testcase name="also good"/>
</testsuite>"""


def test_cases_are_counted_by_what_became_of_them(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(CASES)
    outcome = run_tests.count(report, 1)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (2, 2, 1)


SKIPPED = """<testsuite>
  <testcase name="of pytest"><skipped message="LEFT OUT: it takes root"/></testcase>
  <testcase name="of ctest"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><properties/>
    <system-out>[ RUN      ] PowerCut
/x/power_cut_test.cc:80: Skipped
LEFT OUT: have mounts of our own: Operation not permitted
[  SKIPPED ] PowerCut (0 ms)</system-out></testcase>
  <testcase name="of ctest, too"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
    <system-out>LEFT OUT: have mounts of our own: Operation not permitted
</system-out></testcase>
  <testcase name="of GoogleTest"><skipped message="a_test.cc:8&#x0A;LEFT OUT: no disk"/></testcase>
  <testcase name="told nothing"><skipped/></testcase>
</testsuite>"""


def test_parts_of_programs_are_counted_by_their_cases(tmp_path: Path) -> None:
    for name in ("a-0.xml", "a-1.xml"):
        (tmp_path / name).write_text(CASES)
    outcome = run_tests.of_parts(tmp_path, Outcome(failed=2))
    assert (outcome.passed, outcome.failed, outcome.skipped) == (4, 4, 2)


@pytest.mark.parametrize("programs", [Outcome(passed=2), Outcome(passed=1, failed=1)])
def test_a_program_without_its_report_has_failed(tmp_path: Path, programs: Outcome) -> None:
    (tmp_path / "good-0.xml").write_text('<testsuite><testcase name="good"/></testsuite>')
    outcome = run_tests.of_parts(tmp_path, programs)
    assert (outcome.passed, outcome.failed) == (1, 1)


def test_what_was_skipped_is_told_with_its_reason_before_the_last_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(SKIPPED)
    monkeypatch.setattr(run_tests, "STAGES", {"a": lambda: run_tests.count(report, 0)})
    assert run_tests.main([]) == 0
    assert capsys.readouterr().out.splitlines()[-5:] == [
        "skipped: 2 x LEFT OUT: have mounts of our own: Operation not permitted",
        "skipped: 1 x LEFT OUT: it takes root",
        "skipped: 1 x LEFT OUT: no disk",
        "skipped: 1 x no reason is told",
        "0 passed, 0 failed",
    ]


def test_a_tool_that_died_without_a_failing_case_is_a_failure(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text('<testsuite><testcase name="good"/></testsuite>')
    assert run_tests.count(report, 0) == Outcome(passed=1)
    assert run_tests.count(report, 139) == Outcome(passed=1, failed=1)


@pytest.mark.parametrize("text", [None, "", "<testsuite>"])
def test_a_missing_or_broken_report_is_a_failure(tmp_path: Path, text: str | None) -> None:
    report = tmp_path / "report.xml"
    if text is not None:
        report.write_text(text)
    assert run_tests.count(report, 0) == Outcome(failed=1)


def test_the_last_line_counts_all_stages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KEEP_GOING", raising=False)
    stages = {"a": lambda: Outcome(3, 0, 1), "b": lambda: Outcome(4, 2), "c": lambda: Outcome(9)}
    monkeypatch.setattr(run_tests, "STAGES", stages)
    assert run_tests.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "7 passed, 2 failed"
    assert lines[-2].split() == ["c", "not", "run"]
    monkeypatch.setenv("KEEP_GOING", "1")
    assert run_tests.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "16 passed, 2 failed"
    assert run_tests.main(["c"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "9 passed, 0 failed"


@pytest.mark.parametrize(
    ("stage", "names", "compiled"),
    [
        ("pytest", [], "asan tsan"),
        ("pytest", ["pytest", "ctest tsan"], "tsan"),
        ("pytest", ["pytest"], None),
        ("lint", [], None),
    ],
)
def test_the_trees_of_the_next_stages_are_compiled_beside_the_python_tests(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    stage: str,
    names: list[str],
    compiled: str | None,
) -> None:
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "BUILD", tmp_path)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "build.py").write_text("import sys; print(*sys.argv[1:])")
    with run_tests.compiled_beside(stage, names):
        pass
    log = tmp_path / "beside.log"
    assert (log.read_text().strip() if log.exists() else None) == compiled


def test_the_files_that_begin_first_are_there(request: pytest.FixtureRequest) -> None:
    """The conftest of the repository, as pytest has loaded it."""
    root = Path(__file__).resolve().parents[2]
    path = str(root / "conftest.py")
    order = request.config.pluginmanager.get_plugin(path)
    assert order is not None
    missing = [name for name in order.LONGEST if not (root / name).is_file()]
    assert missing == []
