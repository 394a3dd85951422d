"""The long runs: `make torture` for all of them, `python tools/torture.py --only crash` for some.

Each writes its findings into tests/torture.json, with date, commit and seconds; runs that were
not asked for keep theirs. tests/torture.md is the table of it, with those that were done in parts
or never, and docs/guarantees.md has the trials of each promise; --table writes both anew and runs
nothing. Exit status 1 if one failed, found nothing, left something out or exceeded its time, 130
if interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torture_bounds
import torture_parts

ROOT = Path(__file__).resolve().parents[1]
JSON = ROOT / "tests/torture.json"
TABLE = ROOT / "tests/torture.md"
GUARANTEES = ROOT / "docs/guarantees.md"
TESTS = "build/release/tests"
PYTHON = ".venv/bin/python"
HOUR = 3600
FOUND_MAX = 40  # lines of a run that are kept


@dataclass(frozen=True)
class Run:
    """One long run, and the lines of its output that report its findings."""

    name: str
    what: str
    command: tuple[str, ...]
    figures: str  # a pattern; its matches are kept
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds_max: float = 2 * HOUR  # then it counts as hanging: at least twice its time on two cores


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
        r"\d+ failures.*|\d+ operations carried out.*",
        {"DEEPFREEZE_ALL_ERRORS": "1"},
    ),
    Run(
        "tiers",
        "power cuts in random lives on two tiers, on simulated disks",
        (f"{TESTS}/tiers/tiers_test",),
        r"\d+ states after power cuts in \d+ lives",
        {"DEEPFREEZE_TIER_STATES": "1000000"},
    ),
    Run(
        "links",
        "power cuts in random lives whose checkpoints share files, on a simulated disk",
        (f"{TESTS}/crash/linked_life_test",),
        r"links: .*",
        {"DEEPFREEZE_LINK_STATES": "500000"},
        seconds_max=4 * HOUR,
    ),
    Run(
        "node_losses",
        "DDP on four machines with disks of their own: two die at a random moment, 100 times",
        (PYTHON, "-m", "tests.nodes.namespaces.cases", "ddp_loses_nodes_100_times", "--json"),
        r"\d+ losses of \d+ of \d+ nodes|\d+ files from parity|\"faults\": \[\]",
        seconds_max=HOUR,
    ),
    Run(
        "node_losses_fsdp",
        "the same with FSDP2",
        (PYTHON, "-m", "tests.nodes.namespaces.cases", "fsdp_loses_nodes_100_times", "--json"),
        r"\d+ losses of \d+ of \d+ nodes|\d+ files from parity|\"faults\": \[\]",
        seconds_max=HOUR,
    ),
    Run(
        "node_points",
        "DDP on the same machines: two die at each fail point of a save, of parity, of a flush "
        "and of a restore from parity",
        (PYTHON, "-m", "tests.nodes.namespaces.cases", "nodes_lost_at_all_points", "--json"),
        r"\d+ blows|\d+ files from parity|\"faults\": \[\]",
        seconds_max=HOUR,
    ),
    Run(
        "torchrun",
        "torchrun on three such machines: a process dies, then a machine with its disk",
        (PYTHON, "-m", "tests.nodes.namespaces.cases", "torchrun_starts_it_again", "--json"),
        r"restored \(machines, step\) \[.*?\)\]|\d+ files from parity|\"faults\": \[\]",
        seconds_max=HOUR,
    ),
    Run(
        "wire_flips",
        "bits flipped on the wire between nodes, while the file of a lost one is calculated",
        (f"{TESTS}/nodes/wire_flips_test",),
        r"\d+ bits flipped on the wire, \d+ wrong bytes",
        {"DEEPFREEZE_WIRE_FLIPS": "10000"},
        seconds_max=HOUR,
    ),
    Run(
        "nodes",
        "jobs on two and three machines with disks of their own: deaths, power cuts, lost letters",
        (f"{TESTS}/nodes/crash/nodes_crash_test", "--gtest_filter=*Random*"),
        r"\d+ lives of jobs on several machines.*",
        {"DEEPFREEZE_NODE_LIVES": "100000"},
    ),
    Run(
        "crash_asan",
        "power cuts and errors as above, under ASan and UBSan",
        ("build/asan/tests/crash/crash_test", "--gtest_filter=*Random*:*Error*"),
        r"\d+ states after power cuts in \d+ lives|\d+ failures.*|\d+ operations carried out.*",
        {"DEEPFREEZE_CRASH_STATES": "50000", "DEEPFREEZE_ALL_ERRORS": "1"},
    ),
    Run(
        "power",
        "power cuts on ext4 (ordered, writeback) and XFS",
        (f"{TESTS}/power_cut/power_cut_test",),
        r"\w+: (?:\d+ cuts|NO PROCESS DIED).*|NEVER PASSED.*|LEFT OUT.*",
        {"DEEPFREEZE_POWER_CUTS": "3000"},
        seconds_max=4 * HOUR,
    ),
    Run(
        "agent",
        "trainers with an agent, agents, and both killed at any moment",
        (f"{TESTS}/agent/agent_kills_test",),
        r"agent kills: .*",
        {"DEEPFREEZE_AGENT_KILLS": "2000"},
    ),
    Run(
        "system_calls",
        "the n-th of each of 13 system calls fails with EIO, with ENOSPC, or is the last",
        (PYTHON, "-m", "tests.faults.system_calls"),
        r"system calls: .*|LEFT OUT.*",
        seconds_max=6 * HOUR,
    ),
    Run(
        "block_device",
        "ext4 on a disk that fails, stalls, writes 1 MB/s, or loses what it called synced",
        (PYTHON, "-m", "tests.faults.block_device"),
        r"block device: .*|LEFT OUT.*",
        seconds_max=6 * HOUR,
    ),
    Run(
        "memory",
        "trainers killed by the kernel because memory ran out",
        (PYTHON, "-m", "tests.faults.memory"),
        r"memory: .*|LEFT OUT.*",
    ),
    Run(
        "corruption",
        "damage to files, half of it single bits; each byte of header and manifest; in memory",
        (f"{TESTS}/corruption/corruption_test",),
        r"(?:ranks: \d+; )?\d+ (?:damages|bytes of header|bits of the arena).*",
        {"DEEPFREEZE_DAMAGES": "210000", "DEEPFREEZE_ARENA_FLIPS": "1000"},
        seconds_max=4 * HOUR,
    ),
    Run(
        "corruption_tsan",
        "damage to files and in memory, under ThreadSanitizer",
        ("build/tsan/tests/corruption/corruption_test", "--gtest_filter=-*EveryByte*"),
        r"(?:ranks: \d+; )?\d+ (?:damages|bits of the arena).*",
        {"DEEPFREEZE_DAMAGES": "2000", "DEEPFREEZE_ARENA_FLIPS": "100"},
    ),
    Run(
        "fuzz",
        "hostile bytes for every parser, under ASan and UBSan",
        (PYTHON, "tests/fuzz/run.py", "--record"),
        r"fuzz: \d+ targets, \d+ with findings",
        {"FUZZ_SECONDS": "1800"},
        seconds_max=10 * HOUR,  # of twelve targets
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
        seconds_max=12 * HOUR,
    ),
    Run(
        "mutants_python",
        "each comparison of what has changed left out in turn",
        (PYTHON, "tools/mutants_python.py", "--json", "tests/mutants_python.json"),
        r"mutants: .*|.*UNNOTICED",
        seconds_max=12 * HOUR,
    ),
    Run(
        "torn",
        "tensors that change while they are captured",
        (PYTHON, "-m", "tests.e2e.torn_capture", "--trials", "100"),
        r"\w+ +\d+ (?:reported|whole|wrong).*",
    ),
    Run(
        "identity",
        "runs killed and resumed in each mode of capture, compared with an undisturbed one",
        (PYTHON, "-m", "tests.e2e.resume_identity", "--runs", "100"),
        r"(?m)^(?:mode|identical|kills) .*",
        seconds_max=4 * HOUR,
    ),
    Run(
        "adapters",
        "trainings of adapters on a frozen base, which checkpoints share, killed and resumed",
        (PYTHON, "-m", "tests.e2e.adapter_identity", "--kills", "500"),
        r"(?m)^(?:identical|adapter kills) .*",
    ),
    Run(
        "flips",
        "single bits flipped in the files of a run",
        (PYTHON, "-m", "tests.e2e.detection", "--flips", "2000"),
        r"(?m)^(?:data|header|manifest|run file|claim) .*",
    ),
    Run(
        "first_calls",
        "new processes whose first vector math must be right under df.determinism()",
        (PYTHON, "-m", "tests.e2e.first_calls", "--processes", "1000"),
        r"first calls: .*",
    ),
    Run(
        "frameworks",
        "the tests of the other frameworks, all of Keras's on every backend",
        (PYTHON, "tools/run_tests.py", "frameworks"),
        r"(?m)^\d+ passed, \d+ failed$",
        {"DEEPFREEZE_ALL_BACKENDS": "1", "DEEPFREEZE_LONG_SMOKE": "1"},
    ),
    Run(
        "lab",
        "short experiments of the lab, with two rounds on the GPU's bench and up to four ranks",
        (PYTHON, "-m", "pytest", "lab/tests/test_gpu.py", "lab/tests/test_ranks.py"),
        r"\d+ passed.*",
        {"DEEPFREEZE_LONG_SMOKE": "1"},
    ),
    Run(
        "rank_faults",
        "ranks that are killed or stopped in any phase of a save",
        (PYTHON, "-m", "tests.ranks.rank_faults", "--disturbances", "500"),
        r"rank faults: .*",
        seconds_max=4 * HOUR,
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
        "reshard_tiers",
        "the same from three tiers, on each of which most files are gone or damaged",
        (PYTHON, "-m", "tests.ranks.reshard", "--tiers", "--all"),
        r"reshard from three places: .*",
    ),
    Run(
        "tier_faults",
        "a file of the newest step damaged on one of three tiers, and on all of them",
        (PYTHON, "-m", "tests.e2e.tier_faults", "--faults", "4000"),
        r"tier faults: .*",
    ),
    Run(
        "tier_outage",
        "a farther tier away for ten minutes, and four times for 30 s, while each step is saved",
        (PYTHON, "-m", "tests.faults.tier_outage", "--seconds", "600"),
        r"outage: .*|LEFT OUT.*",
    ),
    Run(
        "object_kills",
        "an object store killed at random requests of flushes, and started again",
        (PYTHON, "-m", "tests.objects.kills", "--kills", "100"),
        r"object kills: .*|LEFT OUT.*",
    ),
    Run(
        "object_flips",
        "single bits flipped in near files, on the way into and out of an object store, and in it",
        (PYTHON, "-m", "tests.objects.flips", "--flips", "1000"),
        r"object flips: .*|LEFT OUT.*",
    ),
    Run(
        "cold_flips",
        "bits flipped in a file that checkpoints share, each read from the other copy",
        ("build/release/src/api/api_test", "--gtest_filter=ColdFilesTest.AreReadFromTheOther*"),
        r"cold flips: .*",
        {"DEEPFREEZE_COLD_FLIPS": "1000"},
    ),
    Run(
        "audit",
        "bits that flip in one rank's copy of the state",
        ("build/release/src/api/api_test", "--gtest_filter=*NamesAFlippedBit*"),
        r"audit: .*",
        {"DEEPFREEZE_AUDIT_FLIPS": "100"},
    ),
    Run(
        "soak",
        "10,000 saves, some torn, some refused by the disk",
        (PYTHON, "-m", "tests.e2e.soak", "--saves", "10000"),
        r"(?m)^(?:mode|newest|\w+ .*growth) .*",
        seconds_max=4 * HOUR,
    ),
    Run(
        "kills",
        "processes killed at every fail point on every way that leads there, and at any moment",
        (PYTHON, "-m", "tests.chaos.kills", "--kills", "1000"),
        r"(?m)^(?:(?:kills|fail points|restored|checkpoints|linked|faults|later passes) "
        r"|LEFT OUT).*",
        seconds_max=6 * HOUR,
    ),
    Run(
        "chaos",
        "trainers that are killed, overtaken and out of disk, beside gc, scrub and readers",
        (PYTHON, "-m", "tests.chaos.soak", "--minutes", "60"),
        r"(?:saves|restores|invariants|LEFT OUT) .*",
    ),
)


def commit() -> str:
    """The commit, with a + if the tree has changes."""
    head = ["git", "describe", "--always", "--abbrev=7", "--dirty=+", "--exclude=*"]
    return subprocess.run(head, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


@dataclass(frozen=True)
class Ended:
    """How a run's process ended; no exit status: it did not, and was killed."""

    exit_status: int | None
    out: str
    errors: str


def run_within(run: Run) -> Ended:
    """Uses files and not pipes: a process that the run leaves behind could hold a pipe open."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            run.command, cwd=ROOT, env={**os.environ, **run.environment}, stdout=out,
            stderr=errors, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            status: int | None = process.wait(run.seconds_max)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:  # too late, or interrupted
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return Ended(status, _text_of(out), _text_of(errors))


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def carry_out(run: Run, at: str) -> dict[str, Any]:
    began = time.monotonic()
    ended = run_within(run)
    found = kept([line.strip() for line in re.findall(run.figures, ended.out)])
    passed = ended.exit_status == 0 and is_whole(found)
    if ended.exit_status is None:
        found.append(f"NO END after {run.seconds_max:g} s")
    if not passed:
        print(ended.out[-4000:], ended.errors[-2000:], sep="\n", file=sys.stderr)
    return {
        "name": run.name,
        "what": run.what,
        "command": command_of(run),
        "passed": passed,
        "found": found,
        "seconds": round(time.monotonic() - began),
        "date": time.strftime("%Y-%m-%d"),
        "commit": at,
    }


def command_of(run: Run) -> str:
    return " ".join([*(f"{k}={v}" for k, v in run.environment.items()), *run.command])


def kept(lines: list[str]) -> list[str]:
    """Equal lines stay, as parts of a sum; each omission is reported once."""
    left_out = [line for line in dict.fromkeys(lines) if line.startswith("LEFT OUT")]
    found = [line for line in lines if not line.startswith("LEFT OUT")]
    more = len(found) - FOUND_MAX
    if more > 0:
        found = [*found[:FOUND_MAX], f"and {more} lines more"]
    return found + left_out


def is_whole(found: list[str]) -> bool:
    """A test that was not there, or could not run here, ends with status 0, too."""
    return bool(found) and not any(line.startswith("LEFT OUT") for line in found)


def stored() -> dict[str, dict[str, Any]]:
    if not JSON.exists():
        return {}
    return {str(each["name"]): each for each in json.loads(JSON.read_text())}


def table(results: Mapping[str, Mapping[str, Any]], parts: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        "# The long runs, as they last ended",
        "",
        "`make torture` does them all; `python tools/torture.py --only NAME` does one. If n",
        "independent trials pass without a failure, the rate is at most 3/n (95 %).",
        "",
        "| run | what | passed | found | time | date | commit |",
        "|---|---|---|---|---|---|---|",
        *(row(run, results.get(run.name), parts.get(run.name)) for run in RUNS),
    ]
    return "\n".join(lines) + "\n"


def row(run: Run, whole: Mapping[str, Any] | None, parts: Mapping[str, Any] | None) -> str:
    recorded = whole or parts
    if recorded is None:
        return f"| {run.name} | {run.what}: `{command_of(run)}` | **never recorded** | | | | |"
    result = {"what": run.what, "command": command_of(run), "commit": "", **recorded}
    passed = ("yes" if result["passed"] else "**NO**") + ("" if whole else ", in parts")
    seconds = "" if result["seconds"] is None else f"{result['seconds']} s"
    return (
        f"| {run.name} | {result['what']}: `{result['command']}` | {passed} | "
        f"{'; '.join(result['found'])} | {seconds} | {result['date']} | {result['commit']} |"
    )


def write(result: dict[str, Any]) -> None:
    """Adds the result to the stored ones: another torture may have run meanwhile."""
    results = stored() | {str(result["name"]): result}
    ordered = [results[run.name] for run in RUNS if run.name in results]
    JSON.write_text(json.dumps(ordered, indent=1) + "\n")
    write_tables(results)


def write_tables(results: Mapping[str, Mapping[str, Any]]) -> None:
    TABLE.write_text(table(results, torture_parts.recorded()))
    GUARANTEES.write_text(torture_bounds.written_into(GUARANTEES.read_text(), results))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    names = [run.name for run in RUNS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME",
                        help=", ".join(names))  # fmt: skip
    parser.add_argument("--table", action="store_true", help="only write the tables anew")
    options = parser.parse_args(arguments)
    if options.table:
        write_tables(stored())
        return 0
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
