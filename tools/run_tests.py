#!/usr/bin/env python3
"""`make test`: lint, then C++ and Python tests, then the C++ tests under the
sanitizers, then those of the other frameworks.

With names of stages (`run_tests.py frameworks`) it runs those alone. The first stage that fails
ends the run (KEEP_GOING=1: it continues). The line before the last lists skipped tests and the
reasons. The last line counts test cases over all stages; a stage that failed without a failing
case (lint, a build) counts as one.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from xml.etree import ElementTree

import build
import lint
from environments import frameworks, ready
from stamp import BUILD, ROOT, VENV


@dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reasons: Counter[str] = field(default_factory=Counter)  # of those that were skipped

    def add(self, other: Outcome) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.reasons += other.reasons


def broken() -> Outcome:
    return Outcome(failed=1)


def count(report: Path, exit_status: int) -> Outcome:
    """Counts the cases of a JUnit report; a tool that failed otherwise counts as one failure."""
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return broken()
    failed = sum(1 for case in cases if _has(case, "failure", "error"))
    skipped = [case for case in cases if _has(case, "skipped")]
    passed = len(cases) - failed - len(skipped)
    if exit_status != 0 and failed == 0:
        failed = 1
    return Outcome(passed, failed, len(skipped), Counter(map(reason, skipped)))


def reason(case: ElementTree.Element) -> str:
    """Why a case was skipped: pytest has it as the message, GoogleTest has printed it."""
    skipped = case.find("skipped")
    message = "" if skipped is None else skipped.get("message", "")
    left_out = re.search(r"LEFT OUT.*", f"{case.findtext('system-out')}\n{message}")
    return left_out[0].strip() if left_out else message.strip() or "no reason is told"


def _has(case: ElementTree.Element, *tags: str) -> bool:
    return any(case.find(tag) is not None for tag in tags)


def run_reporting(command: list[str], report: Path, **settings: str) -> Outcome:
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    path = f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {**os.environ, "PATH": path, **settings}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False)
    return count(report, done.returncode)


def run_lint() -> Outcome:
    return Outcome() if lint.main([]) == 0 else broken()


SANITIZED = ("asan", "tsan")  # a test of ctest is a part of a program there, with many cases


def run_ctest(preset: str) -> Outcome:
    if build.main([preset]) != 0:
        return broken()
    report = BUILD / f"ctest-{preset}.xml"
    # Two for each core: many of these tests wait for a disk.
    jobs = str(2 * int(build.environment()["CMAKE_BUILD_PARALLEL_LEVEL"]))
    command = ["ctest", "--preset", preset, "--no-tests=error", "-j", jobs]
    parts = BUILD / preset / "reports"
    shutil.rmtree(parts, ignore_errors=True)
    outcome = run_reporting([*command, "--output-junit", str(report)], report)
    return of_parts(parts, outcome) if preset in SANITIZED else outcome


def of_parts(reports: Path, programs: Outcome) -> Outcome:
    """The cases of all reports. A program that ended without its report has failed, too."""
    total = Outcome()
    paths = sorted(reports.glob("*.xml"))
    for path in paths:
        total.add(count(path, 0))
    silent = programs.passed + programs.failed + programs.skipped - len(paths)
    total.failed = max(total.failed, programs.failed, silent)
    return total


# Each worker has a processor; more threads of torch spin while they wait for one of another's.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def run_pytest() -> Outcome:
    report = BUILD / "pytest.xml"
    jobs = build.environment()["CMAKE_BUILD_PARALLEL_LEVEL"]
    # A file at a time: its fixtures, runs that are killed a hundred times, are made once. The order
    # of the files is that of conftest.py.
    spread = ["-n", jobs, "--dist", "loadfile", "--no-loadscope-reorder"]
    command = [str(VENV / "bin" / "python"), "-m", "pytest", f"--junitxml={report}", *spread]
    return run_reporting([*command, "--ignore=tests/frameworks"], report, **ONE_THREAD)


# XLA compiles each small operation once, and not again in every process.
JAX_CACHE = {
    "JAX_COMPILATION_CACHE_DIR": str(BUILD / "jax-cache"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


LONGEST = ("test_conformance", "test_keras", "test_exchange")  # they begin first


def run_frameworks() -> Outcome:
    """Runs each file in a process of its own: imports decide which adapters exist."""
    wanted = frameworks()
    if ready(wanted) != 0:
        return broken()

    def run(path: Path) -> Outcome:
        report = BUILD / f"pytest-frameworks-{path.stem}.xml"
        command = [wanted.python, "-m", "pytest", "-q", f"--junitxml={report}", str(path)]
        return run_reporting(command, report, **JAX_CACHE, **ONE_THREAD)

    total = Outcome()
    paths = sorted((ROOT / "tests" / "frameworks").glob("test_*.py"))
    with ThreadPoolExecutor(int(build.environment()["CMAKE_BUILD_PARALLEL_LEVEL"])) as pool:
        for outcome in pool.map(run, sorted(paths, key=lambda path: path.stem not in LONGEST)):
            total.add(outcome)
    return total


STAGES: dict[str, Callable[[], Outcome]] = {
    "lint": run_lint,
    "ctest release": lambda: run_ctest("release"),
    "pytest": run_pytest,
    "ctest asan": lambda: run_ctest("asan"),
    "ctest tsan": lambda: run_ctest("tsan"),
    "frameworks": run_frameworks,
}


def describe(outcome: Outcome) -> str:
    parts = [f"{outcome.passed} passed", f"{outcome.failed} failed"]
    if outcome.skipped:
        parts.append(f"{outcome.skipped} skipped")
    return ", ".join(parts)


def cpu_seconds() -> float:
    """That of all processes that have been waited for: it does not depend on the others' load."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def make_ahead(names: list[str]) -> None:
    """The other frameworks are downloaded beside the compilers; `run_frameworks` waits for them.

    So does the end of this process: an environment that is half made is of no use to the next one.
    """
    if not names or "frameworks" in names:
        Thread(target=lambda: ready(frameworks())).start()


# The Python tests leave a third of the processors idle: they wait for disks and for each other.
COMPILED_BESIDE = "pytest"


@contextmanager
def compiled_beside(stage: str, names: list[str]) -> Iterator[None]:
    """The next stages' trees, at the lowest priority. Their stages build again, and tell errors."""
    presets = [each for each in SANITIZED if not names or f"ctest {each}" in names]
    if stage != COMPILED_BESIDE or not presets:
        yield
        return
    command = ["nice", "-n", "19", sys.executable, str(ROOT / "tools" / "build.py"), *presets]
    with (BUILD / "beside.log").open("w") as log:
        compiling = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            compiling.wait()


def main(names: list[str]) -> int:
    keep_going = os.environ.get("KEEP_GOING", "") not in ("", "0")
    lines: list[str] = []
    total = Outcome()
    make_ahead(names)
    for name, stage in STAGES.items():
        if names and name not in names:
            continue
        if total.failed and not keep_going:
            lines.append(f"  {name:<14} not run")
            continue
        print(f"test: {name}", flush=True)
        start, cpu_before = time.monotonic(), cpu_seconds()
        with compiled_beside(name, names):
            outcome = stage()
        seconds, cpu = time.monotonic() - start, cpu_seconds() - cpu_before
        lines.append(f"  {name:<14} {seconds:5.0f} s  {cpu:5.0f} s of CPU  {describe(outcome)}")
        total.add(outcome)
    print("\n".join(["", "summary", *lines]))
    for why, times in sorted(total.reasons.items()):
        print(f"skipped: {times} x {why}")
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
