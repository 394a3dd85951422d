#!/usr/bin/env python3
"""`make fuzz`: builds the preset `fuzz` and runs each target for FUZZ_SECONDS (60) seconds.

Two at a time (or as many as JOBS says), under nice. Seeds, finds and crashes stay in build/fuzz;
only `--merge` writes to the repository: it makes corpus/*.txt anew from the finds, as small as it
covers the same. Exit status 1 if a target broke a promise, crashed, took too long or too much
memory: it names the input and the next step.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "fuzz"
RECORD = HERE / "record.json"
BUILD = ROOT / "build" / "fuzz"
PROGRAMS = BUILD / "tests" / "fuzz"
NICE = ["nice", "-n", "10"]
INPUT_BYTES_MAX = 16_384
COMMITTED_BYTES_MAX = 2_048  # of an input that is worth its place in the repository
EXECUTED = re.compile(r"^stat::number_of_executed_units:\s+(\d+)", re.MULTILINE)
COVERED = re.compile(r"cov: (\d+) ft: (\d+)")

# An allocation that an input of 16 KiB can't account for is a finding, and so is a slow one.
LIMITS = [
    f"-max_len={INPUT_BYTES_MAX}",
    "-timeout=10",
    "-rss_limit_mb=1024",
    "-malloc_limit_mb=64",
    f"-dict={HERE / 'words.dict'}",
    "-print_final_stats=1",
]
SANITIZERS = {
    "ASAN_OPTIONS": "quarantine_size_mb=16:malloc_context_size=2",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of one target."""

    target: str
    executions: int
    seconds: float  # of a core: on a busy machine less than passed
    covered: int
    findings: tuple[Path, ...]


def say(text: str) -> None:
    print(f"fuzz: {text}", flush=True)


def build(jobs: int) -> None:
    preset = ["cmake", "--preset", "fuzz"]
    compiled = [*NICE, "cmake", "--build", "--preset", "fuzz", "-j", str(jobs)]
    for command in (preset, compiled):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stdout + done.stderr)


def targets() -> list[str]:
    names = [
        path.name.removeprefix("fuzz_") for path in PROGRAMS.glob("fuzz_*") if is_program(path)
    ]
    return sorted(set(names) - {"corpus", "corpus_test"})


def is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def folder(kind: str, target: str) -> Path:
    path = BUILD / kind / target
    path.mkdir(parents=True, exist_ok=True)
    return path


def fuzzer(target: str, *arguments: str) -> tuple[str, float]:
    """The output of a target's fuzzer, and its CPU time in seconds.

    Its exit status says no more than the findings that it leaves.
    """
    command = [*NICE, str(PROGRAMS / f"fuzz_{target}"), *LIMITS, *arguments]
    log = BUILD / f"{target}.log"
    with log.open("w") as output, subprocess.Popen(
        command, cwd=BUILD, env={**os.environ, **SANITIZERS}, stdin=subprocess.DEVNULL,
        stdout=output, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        used = os.wait4(process.pid, 0)[2]  # its own: others run beside it
        process.returncode = 0
    return log.read_text(errors="replace"), used.ru_utime + used.ru_stime


def unpack_seeds(target: str) -> Path:
    seeds = BUILD / "seeds" / target
    shutil.rmtree(seeds, ignore_errors=True)
    subprocess.run([PROGRAMS / "fuzz_corpus", "unpack", target, seeds], check=True)
    return seeds


def run(target: str, seconds: int) -> Outcome:
    seeds = unpack_seeds(target)
    crashes = BUILD / "findings" / target
    shutil.rmtree(crashes, ignore_errors=True)
    crashes.mkdir(parents=True)
    text, used_seconds = fuzzer(
        target,
        f"-max_total_time={seconds}",
        f"-artifact_prefix={crashes}/",
        str(folder("corpus", target)),
        str(seeds),
    )
    executed = EXECUTED.search(text)
    covered = COVERED.findall(text)
    return Outcome(
        target,
        int(executed.group(1)) if executed else 0,
        used_seconds,
        int(covered[-1][0]) if covered else 0,
        tuple(sorted(crashes.iterdir())),
    )


def show(outcomes: list[Outcome]) -> int:
    print(f"{'target':<18}{'executions':>12}{'seconds':>9}{'edges':>8}{'findings':>10}")
    for one in outcomes:
        row = f"{one.target:<18}{one.executions:>12,}{one.seconds:>9.0f}{one.covered:>8}"
        print(f"{row}{len(one.findings):>10}")
    for one in outcomes:
        for path in one.findings:
            log = (BUILD / f"{one.target}.log").relative_to(ROOT)
            again = PROGRAMS / f"fuzz_{one.target}"
            say(f"{one.target}: see {log}; again: {again.relative_to(ROOT)} {path}")
    broken = sum(1 for one in outcomes if one.findings or one.executions == 0)
    say(f"{len(outcomes)} targets, {broken} with findings")
    return 1 if broken else 0


def record(outcomes: list[Outcome]) -> None:
    """How long each target has run since it was last broken, over all runs that were recorded."""
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for one in outcomes:
        before = known.get(one.target, {"executions": 0, "minutes": 0})
        if one.findings:
            before = {"executions": -one.executions, "minutes": -one.seconds / 60}
        known[one.target] = {
            "executions": before["executions"] + one.executions,
            "minutes": round(before["minutes"] + one.seconds / 60, 1),
            "edges": one.covered,
            "last": time.strftime("%Y-%m-%d"),
        }
    rows = [f" {json.dumps(target)}: {json.dumps(known[target])}" for target in sorted(known)]
    RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def merge(target: str) -> str:
    """Moves the smallest choice of finds that covers more than the seeds into the repository."""
    seeds, found, kept = unpack_seeds(target), folder("corpus", target), BUILD / "merged" / target
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    own = [Path(shutil.copy(path, kept)) for path in seeds.glob("seed-*")]
    fuzzer(
        target,
        "-set_cover_merge=1",
        f"-max_len={COMMITTED_BYTES_MAX}",
        *map(str, (kept, seeds, found)),
    )
    for path in own:
        path.unlink()
    packed = subprocess.run(
        [PROGRAMS / "fuzz_corpus", "pack", kept], capture_output=True, text=True, check=True
    ).stdout
    (HERE / "corpus" / f"{target}.txt").write_text(packed)
    return f"{target}: {len(list(kept.iterdir()))} of {len(list(found.iterdir()))} inputs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="default: all targets")
    parser.add_argument("--merge", action="store_true", help="write corpus/*.txt instead")
    parser.add_argument("--record", action="store_true", help="adds to record.json")
    options = parser.parse_args()
    seconds = int(os.environ.get("FUZZ_SECONDS") or "60")
    jobs = int(os.environ.get("JOBS") or len(os.sched_getaffinity(0)))
    build(jobs)
    names = options.targets or targets()
    if options.merge:
        for name in names:
            say(merge(name))
        return 0
    say(f"{len(names)} targets, {seconds} s each, {jobs} at a time")
    with ThreadPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(lambda name: run(name, seconds), names))
    if options.record:
        record(outcomes)
    return show(outcomes)


if __name__ == "__main__":
    sys.exit(main())
