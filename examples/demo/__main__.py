"""The demo: `python -m examples.demo [--full] [--mode M] [--json FILE]`.

Trains two networks without and with a checkpoint at every step, in turn; then kills a third run
with SIGKILL at a random moment, resumes it in a new process and compares the final states.
Exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from examples.demo.child import ChildError, Job, draw_kill, run_to_end, run_until_killed
from examples.demo.program import run_program
from examples.demo.report import ProgressLine, Trial, summary, text
from examples.demo.train import Outcome
from examples.demo.workloads import CHOICES, MODES

ROUNDS = 2


def follow(job: Job, run: Path | None, label: str) -> Outcome:
    progress = ProgressLine(f"{job.workload}: {label}", job.steps)
    try:
        return run_to_end(job, run, progress)
    finally:
        progress.clear()


def measure(trial: Trial, directory: Path) -> None:
    """A B A B, so that a drift of the machine's speed falls on both."""
    for number in range(1, ROUNDS + 1):
        trial.plain.append(follow(trial.job, None, f"no checkpoints, round {number}"))
        run = directory / f"{trial.job.workload}-round-{number}"
        trial.checkpointed.append(follow(trial.job, run, f"one a step, round {number}"))
        shutil.rmtree(run)


def kill_and_resume(trial: Trial, run: Path, draw: random.Random) -> None:
    step_seconds = trial.checkpointed[-1].seconds / trial.job.steps
    trial.kill = draw_kill(draw, trial.job, step_seconds)
    progress = ProgressLine(f"{trial.job.workload}: to be killed", trial.job.steps)
    run_until_killed(trial.job, run, trial.kill, progress)
    progress.clear()
    trial.resumed = follow(trial.job, run, "resumed")
    if trial.resumed.digest != trial.plain[0].digest:
        again = replace(trial.job, until=trial.resumed.resumed_from)
        trial.plain_there = follow(again, None, "no checkpoints, to where it was resumed")


def inspect(trial: Trial, run: Path) -> None:
    """Runs the commands that a user would type next."""
    for verb in ("ls", "verify"):
        print(f"$ deepfreeze {verb} {run}")
        done = run_program(verb, str(run))
        print(done.stdout.rstrip())
        if done.returncode != 0:
            cause = done.stderr.strip() or "no message"
            trial.program_faults.append(f"deepfreeze {verb}: exit {done.returncode}: {cause}")


def demonstrate(job: Job, directory: Path, draw: random.Random) -> Trial:
    trial = Trial(CHOICES[job.workload].size(job.full).title, job)
    run = directory / job.workload
    shutil.rmtree(run, ignore_errors=True)
    measure(trial, directory)
    kill_and_resume(trial, run, draw)
    print()
    inspect(trial, run)
    print(f"\n{text(trial)}\n", flush=True)
    return trial


def parse(arguments: list[str]) -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="examples.demo", description=__doc__)
    parser.add_argument("--full", action="store_true", help="NT3 in its published size, 60,483")
    parser.add_argument("--only", choices=sorted(CHOICES), help="one workload instead of both")
    parser.add_argument("--mode", choices=MODES, default="window", help="of attach()")
    parser.add_argument("--directory", type=Path, default=Path("build/demo"), help="for the runs")
    parser.add_argument("--threads", type=int, default=min(2, cores))
    parser.add_argument("--seed", type=int, help="of the moments to kill at; default: random")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    return parser.parse_args(arguments)


def write_json(path: Path, seed: int, seconds: float, trials: list[Trial]) -> None:
    figures: dict[str, Any] = {"seed": seed, "seconds": seconds}
    figures["workloads"] = [summary(trial) for trial in trials]
    path.write_text(json.dumps(figures, indent=2) + "\n")


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    draw = random.Random(seed)
    options.directory.mkdir(parents=True, exist_ok=True)
    print(f"DeepFreeze demo: seed={seed} (rerun with --seed {seed})", flush=True)
    began = time.perf_counter()
    trials: list[Trial] = []
    try:
        for name in [options.only] if options.only else list(CHOICES):
            steps = CHOICES[name].size(options.full).steps
            job = Job(name, options.full, options.threads, steps, options.mode)
            trials.append(demonstrate(job, options.directory.resolve(), draw))
    except ChildError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    seconds = time.perf_counter() - began
    if options.json is not None:
        write_json(options.json, seed, seconds, trials)
    faults = sum(len(trial.faults()) for trial in trials)
    verdict = "everything the same" if faults == 0 else f"{faults} FAULTS"
    print(f"{len(trials)} workloads in {seconds:.0f} s: {verdict}")
    return 0 if faults == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
