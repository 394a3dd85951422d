"""Line coverage of code that must not fail: `make coverage`.

Builds build/coverage by g++ with gcov's counters, runs the C++ tests there, and counts the lines
of each folder that some test has executed. For the places that carry an error up (DF_TRY,
DF_TRY_VOID) it counts those at which a test has made that error happen. Errors that a check makes
are the business of tools/mutants.py: a missing check is noticed only by a test of its error.
`--uncovered` lists the rest, `--json FILE` keeps the figures. Exit status 1 if a folder has less
than 95 % of its lines, an error that is carried up never came, or a test failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from build import build_preset
from stamp import BUILD, ROOT

TREE = BUILD / "coverage"
FOLDERS = ("json", "format", "manifest", "storage", "restore")
LINES_MIN = 0.95
CARRIES_UP = re.compile(r"^\s*(?:\} else \{)?\s*DF_TRY(?:_VOID)?\(")
TEST_FILE = re.compile(r"_test\.cc$|_fixture\.h$")


@dataclass
class Counts:
    """One source file's, over all objects that it was compiled into."""

    lines: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    # The branches of a line that no exception takes, by function and place in the line.
    branches: dict[int, dict[tuple[str, int], int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )

    def add(self, line: dict[str, Any]) -> None:
        number, function = line["line_number"], line.get("function_name", "")
        self.lines[number] += line["count"]
        for place, branch in enumerate(line["branches"]):
            if not branch["throw"]:
                self.branches[number][function, place] += branch["count"]


@dataclass
class Folder:
    name: str
    lines: int = 0
    lines_run: int = 0
    errors: int = 0
    errors_run: int = 0
    uncovered: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.lines_run / self.lines if self.lines else 0.0

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"folder": self.name, "lines": self.lines}
        found |= {"lines_run": self.lines_run, "errors": self.errors}
        return found | {"errors_run": self.errors_run, "uncovered": self.uncovered}


def say(text: str) -> None:
    print(f"coverage: {text}", flush=True)


def run_tests() -> int:
    """Each once; random lives and damage in fewer states: without optimisation they are slow."""
    for stale in TREE.rglob("*.gcda"):
        stale.unlink()
    command = ["ctest", "-j", "2", "--output-on-failure", "--timeout", "1800"]
    fewer = {**os.environ, "DEEPFREEZE_CRASH_STATES": "1000", "DEEPFREEZE_DAMAGES": "200"}
    done = subprocess.run(command, cwd=TREE, env=fewer, stdin=subprocess.DEVNULL, check=False)
    return done.returncode


def gcov_documents(folder: str) -> Iterator[dict[str, Any]]:
    """The output of gcov for every object of the folder."""
    for notes in sorted((TREE / "src" / folder).rglob("*.gcno")):
        command = ["gcov", "--json-format", "--stdout", "--branch-probabilities", str(notes)]
        done = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            yield json.loads(line)


def count(folder: str) -> dict[Path, Counts]:
    found: dict[Path, Counts] = defaultdict(Counts)
    home = ROOT / "src" / folder
    for document in gcov_documents(folder):
        for file in document["files"]:
            path = (TREE / file["file"]).resolve()
            if home in path.parents and not TEST_FILE.search(path.name):
                for line in file["lines"]:
                    found[path].add(line)
    return found


def examine(name: str) -> Folder:
    folder = Folder(name)
    for path, counts in sorted(count(name).items()):
        source = path.read_text().splitlines()
        for number, executed in sorted(counts.lines.items()):
            text = source[number - 1]
            place = f"{path.relative_to(ROOT)}:{number}: {text.strip()}"
            folder.lines += 1
            folder.lines_run += executed > 0
            if executed == 0:
                folder.uncovered.append(place)
            if CARRIES_UP.match(text):
                taken = all(counts.branches[number].values())
                folder.errors += 1
                folder.errors_run += taken
                if executed and not taken:
                    folder.uncovered.append(f"{place}  [no error came]")
    return folder


def table(folders: list[Folder]) -> str:
    rows = [f"{'folder':<10}{'lines':>7}{'run':>7}{'share':>8}{'errors carried up':>20}{'run':>6}"]
    for one in folders:
        numbers = f"{one.lines:>7}{one.lines_run:>7}{one.share:>8.1%}"
        rows.append(f"{one.name:<10}{numbers}{one.errors:>20}{one.errors_run:>6}")
    return "\n".join(rows)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="coverage", description=__doc__)
    parser.add_argument("--uncovered", action="store_true", help="lists lines that no test runs")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--as-it-is", action="store_true", help="neither builds nor runs tests")
    options = parser.parse_args(arguments)
    failed = 0
    if not options.as_it_is:
        failed = build_preset("coverage") or run_tests()
    folders = [examine(name) for name in FOLDERS]
    print(table(folders))
    if options.uncovered:
        print("\n".join(line for one in folders for line in one.uncovered))
    if options.json:
        options.json.write_text(json.dumps([one.as_json() for one in folders], indent=1) + "\n")
    low = [one.name for one in folders if one.share < LINES_MIN]
    say(f"below {LINES_MIN:.0%}: {', '.join(low)}" if low else f"all at {LINES_MIN:.0%} or above")
    unseen = sum(one.errors - one.errors_run for one in folders)
    if unseen:
        say(f"{unseen} errors that are carried up never came: see --uncovered")
    return 1 if failed or low or unseen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
