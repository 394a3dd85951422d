"""The mutants of Python: each comparison that decides about a change is left out in turn.

`python tools/mutants_python.py`: == and `is` become true, != and `is not` false, in a copy of the
installed package that the tests import instead; comparisons with None are left alone. Those that
may be left out are in tools/mutants_idle.txt too. The tests must pass if nothing is left out:
their time tells which mutant hangs. Exit status 1 if one is unnoticed, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from mutants import idle_sites, labelled

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("python/deepfreeze")
COPIES = ROOT / "build/mutants/python"
# Modules that tell one save from the next, and a stored tree from a live one.
SOURCES = (
    "saving/guards.py", "state/encoder.py", "restoring/matching.py",
    "restoring/filling.py", "restoring/restorer.py",
    "frameworks/torch/guards.py", "frameworks/torch/recall.py", "frameworks/torch/memo.py",
    "frameworks/torch/modules.py", "frameworks/torch/module_match.py",
    "frameworks/torch/optimizers.py", "frameworks/torch/optimizer_match.py",
    "frameworks/torch/tensors.py",
)  # fmt: skip
# Quickest first; the rest of python/tests comes after them.
FIRST = (
    "test_window.py", "test_guard_memo.py", "test_recall.py", "test_recall_dicts.py",
    "test_memo.py",
)  # fmt: skip
SLOWER = 4.0  # than with nothing left out: then it hangs


@dataclass(frozen=True)
class Mutant:
    """One comparison, and the tests' answer once it is known."""

    path: str
    line: int
    text: str  # as in mutants_idle.txt
    noticed_by: str = ""  # the first test that failed


class LeaveOut(ast.NodeTransformer):
    """Makes the comparison of that number a constant."""

    def __init__(self, number: int) -> None:
        self._left = number

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if not is_site(node):
            return node
        self._left -= 1
        if self._left != -1:
            return node
        return ast.copy_location(ast.Constant(isinstance(node.ops[0], ast.Eq | ast.Is)), node)


def is_site(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare):
        return False
    of_none = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
    return isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot) and not of_none


def in_order(tree: ast.AST) -> Iterator[ast.Compare]:
    """In the order in which LeaveOut meets them: inner ones come first."""
    for child in ast.iter_child_nodes(tree):
        yield from in_order(child)
    if isinstance(tree, ast.Compare) and is_site(tree):
        yield tree


def installed() -> Path:
    """The package with its extension, as `make build` left it in .venv."""
    found = sorted((ROOT / ".venv").glob("lib/python3.*/site-packages/deepfreeze"))
    if not found:
        raise SystemExit("mutants: no package in .venv: run make build first")
    return found[0]


def copy_of_package(place: Path) -> None:
    """Its sources as they are now."""
    shutil.copytree(installed(), place / "deepfreeze", dirs_exist_ok=True)
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        target = place / "deepfreeze" / path.relative_to(ROOT / PACKAGE)
        target.write_bytes(path.read_bytes())


def copy_without(place: Path, source: str, number: int) -> None:
    """The package in `place`, one comparison left out."""
    copy_of_package(place)
    tree = LeaveOut(number).visit(ast.parse((ROOT / PACKAGE / source).read_text()))
    (place / "deepfreeze" / source).write_text(ast.unparse(ast.fix_missing_locations(tree)))


def tests() -> list[str]:
    folder = ROOT / "python/tests"
    rest = sorted(path.name for path in folder.glob("test_*.py") if path.name not in FIRST)
    return [str(folder / name) for name in (*FIRST, *rest)]


def first_failure(place: Path, seconds_max: float | None) -> str:
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(ROOT / ".venv/bin/python"), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *tests()], cwd=ROOT, env=environment, capture_output=True, text=True,
            timeout=seconds_max, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stdout.splitlines() if "::" in line]  # else of a log
    named = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return named[0].split(" - ")[0].split("/")[-1] if named else "the tests end early"


def seconds_of_all() -> float:
    """The time of the tests with nothing left out; SystemExit if one fails."""
    place = COPIES / "whole"
    shutil.rmtree(place, ignore_errors=True)
    copy_of_package(place)
    began = time.monotonic()
    failed = first_failure(place, None)
    shutil.rmtree(place)
    if failed:
        raise SystemExit(f"mutants: {failed} with nothing left out")
    return time.monotonic() - began


def examine(mutant: Mutant, number: int, seconds_max: float) -> Mutant:
    place = COPIES / f"{Path(mutant.path).stem}-{number}"
    shutil.rmtree(place, ignore_errors=True)
    copy_without(place, mutant.path, number)
    noticed = first_failure(place, seconds_max)
    shutil.rmtree(place)
    return Mutant(mutant.path, mutant.line, mutant.text, noticed)


def sites() -> list[tuple[int, Mutant]]:
    """All of them, each with its number in its file."""
    found = []
    for source in SOURCES:
        nodes = list(in_order(ast.parse((ROOT / PACKAGE / source).read_text())))
        labels = labelled([(source, ast.unparse(node)) for node in nodes])
        for number, (node, (_, label)) in enumerate(zip(nodes, labels, strict=True)):
            found.append((number, Mutant(source, node.lineno, label)))
    return found


def excused() -> set[tuple[str, str]]:
    """The sites of Python that may be left out; SystemExit if an entry fits none of them."""
    found = {(path.removeprefix(f"{PACKAGE}/"), label)
             for path, label in idle_sites() if path.startswith(f"{PACKAGE}/")}  # fmt: skip
    if unfit := found - {(one.path, one.text) for _, one in sites()}:
        raise SystemExit(f"mutants_idle.txt: no site, or several: {sorted(unfit)}")
    return found


def mutants(only: str) -> list[tuple[int, Mutant]]:
    left = excused()
    return [
        (number, one)
        for number, one in sites()
        if only in f"{one.path}:{one.line}" and (one.path, one.text) not in left
    ]


def noticed_before(file: Path | None) -> dict[tuple[str, str], Mutant]:
    """The verdicts in a file of --json, by file and text; none if the file is missing."""
    if file is None or not file.exists():
        return {}
    known = [Mutant(**each) for each in json.loads(file.read_text())]
    return {(one.path, one.text): one for one in known if one.noticed_by}


def in_turn(left: list[tuple[int, Mutant]], jobs: int) -> Iterator[Mutant]:
    seconds_max = SLOWER * jobs * seconds_of_all()
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(examine, one, number, seconds_max) for number, one in left]
        for each in waiting:
            yield each.result()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="mutants_python", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="those whose file:line has it")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    add = parser.add_argument
    add("--again", type=Path, metavar="FILE", help="all sites but those noticed there")
    add("--json", type=Path, metavar="FILE", help="every verdict at once, and those of --again")
    options = parser.parse_args(arguments)
    every, before = mutants(""), noticed_before(options.again)
    places = {(one.path, one.text): one.line for _, one in every}
    verdicts = {key: replace(one, line=places[key]) for key, one in before.items() if key in places}
    left = [each for each in mutants(options.only) if (each[1].path, each[1].text) not in verdicts]
    unnoticed = 0
    for one in in_turn(left, options.jobs):
        print(f"{one.path}:{one.line}: {one.text[:70]}: {one.noticed_by or 'UNNOTICED'}",
              flush=True)  # fmt: skip
        unnoticed += not one.noticed_by
        verdicts[one.path, one.text] = one
        if options.json is not None:
            ordered = sorted(verdicts.values(), key=lambda one: (SOURCES.index(one.path), one.line))
            options.json.write_text(json.dumps([*map(asdict, ordered)], indent=1) + "\n")
    print(f"mutants: {len(left)} comparisons left out in turn, {unnoticed} unnoticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
