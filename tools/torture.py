"""The long runs: `make torture` for all of them, `python tools/torture.py --only crash` for some.

Each writes what it found into tests/torture.json, with date, commit and seconds; runs that were
not asked for keep theirs. tests/torture.md is the table of it. Exit status 1 where one failed,
found nothing or left something out, 130 where interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
JSON = ROOT / "tests/torture.json"
TABLE = ROOT / "tests/torture.md"
TESTS = "build/release/tests"
PYTHON = ".venv/bin/python"


@dataclass(frozen=True)
class Run:
    """One long run, and the lines of its output that say what it found."""

    name: str
    what: str
    command: tuple[str, ...]
    figures: str  # a pattern; its matches are kept
    environment: Mapping[str, str] = field(default_factory=dict)


RUNS = (
    Run(
        "crash",
        "power cuts in random lives, on a simulated disk",
        (f"{TESTS}/crash/crash_test", "--gtest_filter=*RandomCrash*"),
        r"\d+ states after power cuts in \d+ lives",
        {"DEEPFREEZE_CRASH_STATES": "1000000"},
    ),
    Run(
        "errors",
        "each operation and each read fails once, with each of eight errors",
        (f"{TESTS}/crash/crash_test", "--gtest_filter=*IoError*:RestoreError*"),
        r"\d+ failures.*",
        {"DEEPFREEZE_ALL_ERRORS": "1"},
    ),
    Run(
        "power",
        "power cuts on ext4 (ordered, writeback) and XFS",
        (f"{TESTS}/power_cut/power_cut_test",),
        r"\w+: \d+ cuts.*|LEFT OUT.*",
        {"DEEPFREEZE_POWER_CUTS": "3000"},
    ),
    Run(
        "system_calls",
        "the n-th of each of 13 system calls fails with EIO, with ENOSPC, or is the last",
        (PYTHON, "-m", "tests.faults.system_calls"),
        r"system calls: .*|LEFT OUT.*",
    ),
    Run(
        "block_device",
        "ext4 on a disk that fails, stalls, writes 1 MB/s, or loses what it called synced",
        (PYTHON, "-m", "tests.faults.block_device"),
        r"block device: .*|LEFT OUT.*",
    ),
    Run(
        "memory",
        "trainers killed by the kernel because memory ran out",
        (PYTHON, "-m", "tests.faults.memory"),
        r"memory: .*|LEFT OUT.*",
    ),
    Run(
        "corruption",
        "damage to files at rest; each byte of header and manifest",
        (f"{TESTS}/corruption/corruption_test",),
        r"\d+ damages.*",
        {"DEEPFREEZE_DAMAGES": "100000"},
    ),
    Run(
        "fuzz",
        "hostile bytes for every parser, under ASan and UBSan",
        (PYTHON, "tests/fuzz/run.py", "--record"),
        r"fuzz: \d+ targets, \d+ with findings",
        {"FUZZ_SECONDS": "1800"},
    ),
    Run(
        "race",
        "threads that copy, fence, write and cancel at once, under ThreadSanitizer",
        ("build/tsan/tests/race/race_test",),
        r".*sessions.*",
        {"DEEPFREEZE_RACE_SECONDS": "300"},
    ),
    Run(
        "mutants",
        "each sync and each check left out in turn",
        (PYTHON, "tools/mutants.py", "--json", "tests/mutants.json"),
        r"mutants: .*|.*UNNOTICED",
    ),
    Run(
        "mutants_python",
        "each comparison of what has changed left out in turn",
        (PYTHON, "tools/mutants_python.py", "--json", "tests/mutants_python.json"),
        r"mutants: .*|.*UNNOTICED",
    ),
    Run(
        "torn",
        "tensors that change while they are captured",
        (PYTHON, "-m", "tests.e2e.torn_capture", "--trials", "100"),
        r"\w+ +\d+ (?:reported|whole|wrong).*",
    ),
    Run(
        "rank_faults",
        "ranks that are killed or stopped in any phase of a save",
        (PYTHON, "-m", "tests.ranks.rank_faults", "--disturbances", "500"),
        r"rank faults: .*",
    ),
    Run(
        "rank_identity",
        "all ranks killed, resumed, and compared with a training that was not disturbed",
        (PYTHON, "-m", "tests.ranks.resume_identity", "--runs", "50"),
        r"ranks: .*",
    ),
    Run(
        "reshard",
        "what any layout of 1 to 8 ranks has saved, restored by any other",
        (PYTHON, "-m", "tests.ranks.reshard", "--all"),
        r"reshard: .*",
    ),
    Run(
        "audit",
        "bits that flip in one rank's copy of the state",
        ("build/release/src/engine/engine_test", "--gtest_filter=*NamesAFlippedBit*"),
        r"audit: .*",
        {"DEEPFREEZE_AUDIT_FLIPS": "100"},
    ),
    Run(
        "soak",
        "10,000 saves, some torn, some refused by the disk",
        (PYTHON, "-m", "tests.e2e.soak", "--saves", "10000"),
        r".*saves.*",
    ),
    Run(
        "chaos",
        "trainers that are killed, overtaken and out of disk, beside gc, scrub and readers",
        (PYTHON, "-m", "tests.chaos.soak", "--minutes", "60"),
        r"(?:saves|restores|invariants|LEFT OUT) .*",
    ),
)


def commit() -> str:
    """The commit, with a + where the tree has changes."""
    head = ["git", "describe", "--always", "--abbrev=7", "--dirty=+", "--exclude=*"]
    return subprocess.run(head, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def carry_out(run: Run, at: str) -> dict[str, Any]:
    began = time.monotonic()
    done = subprocess.run(
        run.command, cwd=ROOT, env={**os.environ, **run.environment}, capture_output=True,
        text=True, errors="replace", check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    found = [line.strip() for line in re.findall(run.figures, done.stdout)]
    passed = done.returncode == 0 and is_whole(found)
    if not passed:
        print(done.stdout[-4000:], done.stderr[-2000:], sep="\n", file=sys.stderr)
    return {
        "name": run.name,
        "what": run.what,
        "command": " ".join([*(f"{k}={v}" for k, v in run.environment.items()), *run.command]),
        "passed": passed,
        "found": list(dict.fromkeys(found))[-8:],
        "seconds": round(time.monotonic() - began),
        "date": time.strftime("%Y-%m-%d"),
        "commit": at,
    }


def is_whole(found: list[str]) -> bool:
    """A test that was not there, or could not run here, ends with status 0, too."""
    return bool(found) and not any(line.startswith("LEFT OUT") for line in found)


def stored() -> dict[str, dict[str, Any]]:
    if not JSON.exists():
        return {}
    return {str(each["name"]): each for each in json.loads(JSON.read_text())}


def table(results: list[dict[str, Any]]) -> str:
    lines = [
        "# The long runs, as they last ended",
        "",
        "`make torture` does them all; `python tools/torture.py --only NAME` one. Zero failures in"
        " n independent trials bound the rate at 3/n (95 %).",
        "",
        "| run | what | passed | found | time | date | commit |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in results:
        texts = "; ".join(each["found"])
        lines.append(
            f"| {each['name']} | {each['what']}: `{each['command']}` | "
            f"{'yes' if each['passed'] else '**NO**'} | {texts} | {each['seconds']} s | "
            f"{each['date']} | {each['commit']} |"
        )
    return "\n".join(lines) + "\n"


def write(result: dict[str, Any]) -> None:
    """Beside what is stored by then: another torture may have run meanwhile."""
    results = stored() | {str(result["name"]): result}
    ordered = [results[run.name] for run in RUNS if run.name in results]
    JSON.write_text(json.dumps(ordered, indent=1) + "\n")
    TABLE.write_text(table(ordered))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    names = [run.name for run in RUNS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME",
                        help=", ".join(names))  # fmt: skip
    options = parser.parse_args(arguments)
    failed = 0
    at = commit()  # before the first run: its results change the tree, and so may others meanwhile
    for run in RUNS:
        if run.name not in options.only:
            continue
        print(f"torture: {run.name}: {run.what}", flush=True)
        result = carry_out(run, at)
        failed += not result["passed"]
        print(f"torture: {run.name}: {'; '.join(result['found'])}", flush=True)
        write(result)
    print(f"torture: {len(options.only)} runs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
