"""Is every sync and every check needed, and would a test notice? Leaves out one at a time.

`python tools/mutants.py`: all sites are compiled in at once and chosen by DF_MUTANT; for each, the
tests of its module run first, then all others, until one fails. Sites that may be left out are
listed with their reasons in tools/mutants_idle.txt. Exit status 1 if one is unnoticed or an
entry of that list does not fit exactly one site, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import mutant_tree as tree
from mutant_sites import Edit, Site

ROOT = Path(__file__).resolve().parents[1]
IDLE = ROOT / "tools" / "mutants_idle.txt"
SLACK_SECONDS = 20.0  # beyond which a test that is usually quick counts as hung
SLOWER = 10.0


@dataclass(frozen=True)
class Verdict:
    """The outcome of one mutant."""

    number: int
    site: Site
    noticed_by: str  # program and test; empty if nothing failed


class Programs:
    """The test programs, and how long each takes if nothing is left out."""

    def __init__(self, paths: list[Path]) -> None:
        self._seconds: dict[Path, float] = {}
        for path in paths:
            began = time.monotonic()
            said = self._run(path, 0, None)
            if said:
                raise SystemExit(f"mutants: {path.name} fails with nothing left out: {said}")
            self._seconds[path] = time.monotonic() - began

    def notice(self, number: int, site: Site) -> str:
        """The first test that fails without the site."""
        own = Path(site.path).parent.name + "_test"
        order = sorted(self._seconds, key=lambda path: (path.name != own, self._seconds[path]))
        for path in order:
            said = self._run(path, number, SLACK_SECONDS + SLOWER * self._seconds[path])
            if said:
                return f"{path.name}: {said}"
        return ""

    def _run(self, path: Path, number: int, seconds_max: float | None) -> str:
        """The test that failed; empty if all passed."""
        with tempfile.TemporaryDirectory(prefix="df-mutant-") as place:
            Path(place).chmod(0o755)  # some tests become another user
            environment = {**os.environ, "DF_MUTANT": str(number), "TMPDIR": place}
            environment["TEST_TMPDIR"] = place
            command = [str(path), "--gtest_fail_fast", "--gtest_color=no"]
            try:
                done = subprocess.run(
                    command, env=environment, capture_output=True, text=True, errors="replace",
                    timeout=seconds_max, cwd=place, check=False, stdin=subprocess.DEVNULL,
                )  # fmt: skip
            except subprocess.TimeoutExpired as cause:
                said = cause.stdout or b""
                text = said.decode(errors="replace") if isinstance(said, bytes) else said
                return f"hangs in {last_test(text)}"
        if done.returncode == 0:
            return ""
        failed = [line for line in done.stdout.splitlines() if line.startswith("[  FAILED  ]")]
        if failed:
            return failed[0].removeprefix("[  FAILED  ]").split(" (")[0].split(",")[0].strip()
        return f"dies in {last_test(done.stdout)}"


def last_test(said: str) -> str:
    begun = [line for line in said.splitlines() if line.startswith("[ RUN      ]")]
    return begun[-1].removeprefix("[ RUN      ]").strip() if begun else "its start"


def idle_sites() -> set[tuple[str, str]]:
    """Sites that may be left out, by file and label. Lines: file | label | reason."""
    found = set()
    for line in IDLE.read_text().splitlines():
        if line and not line.startswith("#"):
            path, label, _ = (part.strip() for part in line.split(" | ", 2))
            found.add((path, label))
    return found


def labels(edits: list[tuple[int, Edit]]) -> dict[int, tuple[str, str]]:
    """The file and label of each edit, by its number."""
    keys = labelled([(edit.site.path, edit.site.text) for _, edit in edits])
    return {number: key for (number, _), key in zip(edits, keys, strict=True)}


def labelled(sites: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """File and text; the second time a file has a text, the label ends in "#2"."""
    all_of = Counter(sites)
    so_far: Counter[tuple[str, str]] = Counter()
    found = []
    for key in sites:
        path, text = key
        so_far[key] += 1
        found.append((path, text if all_of[key] == 1 else f"{text} #{so_far[key]}"))
    return found


def examine(edits: list[tuple[int, Edit]], programs: Programs, jobs: int) -> Iterator[Verdict]:
    pool = ThreadPoolExecutor(jobs)
    try:
        waiting = [
            (number, edit.site, pool.submit(programs.notice, number, edit.site))
            for number, edit in edits
        ]
        for number, site, notice in waiting:
            yield Verdict(number, site, notice.result())
    finally:
        pool.shutdown(cancel_futures=True)


def noticed_before(verdicts: Path | None) -> Counter[tuple[str, str]]:
    """How many were noticed, by file and text, from a file of --json; 0 if one was not."""
    found: Counter[tuple[str, str]] = Counter()
    if verdicts is None:
        return found
    sites = [(each["site"], each["noticed_by"]) for each in json.loads(verdicts.read_text())]
    found.update((site["path"], site["text"]) for site, _ in sites)
    found.update({(site["path"], site["text"]): -len(sites) for site, by in sites if not by})
    return +found


def chosen(edits: list[tuple[int, Edit]], options: argparse.Namespace) -> list[tuple[int, Edit]]:
    label, idle = labels(edits), set() if options.all else idle_sites()
    needed = [(number, edit) for number, edit in edits if label[number] not in idle]
    before = noticed_before(options.again)
    # A text that is there more often than it was says of none which one is new.
    count = Counter((edit.site.path, edit.site.text) for _, edit in needed)
    known = {key for key in count if count[key] <= before[key]}
    return [
        (number, edit)
        for number, edit in needed
        if (options.only or "") in f"{edit.site.path}:{edit.site.line}"
        and (edit.site.path, edit.site.text) not in known
    ]


def kept(
    edits: list[tuple[int, Edit]], wanted: list[tuple[int, Edit]], verdicts: Path
) -> list[Verdict]:
    """The verdicts of FILE on sites that are not tried again, at their places of today."""
    noticed: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in json.loads(verdicts.read_text()):
        noticed[each["site"]["path"], each["site"]["text"]].append(each["noticed_by"])
    numbers, label, idle = {number for number, _ in wanted}, labels(edits), idle_sites()
    rest = [
        (number, edit.site)
        for number, edit in edits
        if number not in numbers and label[number] not in idle
    ]
    found = [(number, site, noticed[site.path, site.text]) for number, site in rest]
    return [Verdict(number, site, by.pop(0)) for number, site, by in found if by]


def write(path: Path, verdicts: list[Verdict]) -> None:
    every = sorted(verdicts, key=lambda verdict: verdict.number)
    path.write_text(json.dumps([asdict(each) for each in every], indent=1) + "\n")


def misfits(edits: list[tuple[int, Edit]]) -> list[str]:
    """Entries of the list that are not the label of one site."""
    there = set(labels(edits).values())
    listed = sorted(entry for entry in idle_sites() if entry[0].startswith("src/"))
    return [f"{path}: {label}" for path, label in listed if (path, label) not in there]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--list", action="store_true", help="only name the sites")
    parser.add_argument("--only", metavar="TEXT", help="sites whose file:line has this in it")
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="sites unnoticed in FILE of --json, and new ones",
    )
    parser.add_argument("--all", action="store_true", help="those of mutants_idle.txt too")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="every verdict, those of --again too"
    )
    return parser.parse_args(arguments)


def show(verdict: Verdict) -> None:
    site = verdict.site
    told = verdict.noticed_by or "UNNOTICED"
    print(f"{verdict.number:4} {site.path}:{site.line}: {site.kind} {site.text[:70]}: {told}",
          flush=True)  # fmt: skip


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    edits = tree.find_edits(ROOT)
    wanted = chosen(edits, options)
    if options.list:
        label = labels(edits)
        for number, edit in wanted:
            path, text = label[number]
            print(f"{number:4} {path}:{edit.site.line}: {edit.site.kind} {text}")
        return 0
    place, binaries = ROOT / "build/mutants/tree", ROOT / "build/mutants/build"
    tree.write(ROOT, place, edits)
    tree.build(place, binaries, options.jobs)
    programs = Programs(tree.test_programs(binaries))
    known = kept(edits, wanted, options.again) if options.again else []
    verdicts: list[Verdict] = []
    try:
        for verdict in examine(wanted, programs, options.jobs):
            show(verdict)
            verdicts.append(verdict)
    finally:  # an interrupted run keeps its verdicts, and --again tries the rest
        if options.json is not None:
            write(options.json, [*known, *verdicts])
    unnoticed = [verdict for verdict in verdicts if not verdict.noticed_by]
    unfit = misfits(edits)
    for entry in unfit:
        print(f"mutants_idle.txt: no site, or several: {entry}")
    print(f"mutants: {len(verdicts)} left out in turn, {len(unnoticed)} unnoticed")
    return 1 if unnoticed or unfit else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
