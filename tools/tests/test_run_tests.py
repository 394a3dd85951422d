"""The counts that `make test` ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

import run_tests
from run_tests import Outcome

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
    assert run_tests.count(report, 1) == Outcome(passed=2, failed=2, skipped=1)


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
