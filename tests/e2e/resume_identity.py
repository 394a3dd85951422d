"""Resume identity: `python -m tests.e2e.resume_identity --runs 100 [--seed S] [--json]`.

Each run is killed with SIGKILL at a random time (start-up included, and perhaps again), resumed in
a new process until it ends, and must end with the SHA-256 of the run that had no checkpoints at
all. Negative controls forget one part of the state and must end differently.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch
import torch._dynamo  # an optimizer's first use imports it: here once, not in every child

from .fork_server import Ended, Say, fork_and_run
from .small_run import STEPS, train, train_without_checkpoints

CONTROLS = ("rng", "data", "moment", "buffer")
CONTROL_STEP = STEPS // 2 + 1  # inside an epoch
SECOND_KILL_CHANCE = 0.4
KILLS_MAX = 5  # of one run


@dataclass
class Tally:
    """What all runs together showed."""

    seed: int
    reference: str
    runs: int = 0
    identical: int = 0
    kills: int = 0
    redrawn: int = 0  # runs that ended before their kill came: done again
    kill_found: Counter[str] = field(default_factory=Counter)
    resumed_from: list[int] = field(default_factory=list)
    controls: dict[str, str] = field(default_factory=dict)

    def faults(self) -> list[str]:
        faults = []
        if self.identical != self.runs:
            faults.append(f"{self.runs - self.identical} of {self.runs} runs ended differently")
        if self.controls.get("nothing", self.reference) != self.reference:
            faults.append("the control that forgets nothing ended differently")
        for name in CONTROLS:
            if self.controls.get(name, "") == self.reference:
                faults.append(f"the control without {name} ended the same: the test has no power")
        return faults


def train_child(
    run: Path, forget: str = "", die_after: int = 0, kill: float | None = None
) -> Ended:
    """Reports "resumed-from digest", the second only where it came to the end."""

    def work(say: Say) -> None:
        torch.set_num_threads(1)
        digest = train(run, forget=forget, die_after=die_after, tell=lambda step: say(f"{step} "))
        say(digest)

    return fork_and_run(work, kill)


def reference_digest() -> str:
    def work(say: Say) -> None:
        torch.set_num_threads(1)
        say(train_without_checkpoints())

    return fork_and_run(work).report


def state_of_disk(run: Path) -> str:
    """In what phase the kill came, told by what it left behind."""
    if not (run / "deepfreeze.json").exists():
        return "during start-up"
    attempts = list(run.glob("step-*"))
    if any(not (attempt / "manifest.json").exists() for attempt in attempts):
        return "inside a save"
    return "between saves" if attempts else "before the first save"


def one_run(run: Path, draw: random.Random, seconds: float, tally: Tally) -> None:
    """Kills and resumes until the run ends by itself."""
    kills = 0
    while True:
        again = kills == 0 or (kills < KILLS_MAX and draw.random() < SECOND_KILL_CHANCE)
        ended = train_child(run, kill=draw.uniform(0.0, seconds) if again else None)
        if ended.killed:
            kills += 1
            tally.kill_found[state_of_disk(run)] += 1
        elif kills == 0:
            tally.redrawn += 1
            shutil.rmtree(run)
        else:
            break
    resumed_from, digest = ended.report.split()
    tally.runs += 1
    tally.kills += kills
    tally.resumed_from.append(int(resumed_from))
    tally.identical += digest == tally.reference


def control(run: Path, forget: str) -> str:
    """Dies at a step inside an epoch, is resumed there; the digest at the end."""
    died = train_child(run, forget, die_after=CONTROL_STEP)
    assert died.killed, "the control did not die"
    resumed_from, digest = train_child(run, forget).report.split()
    assert int(resumed_from) == CONTROL_STEP, f"the control resumed from {resumed_from}"
    return digest


def usual_seconds(directory: Path) -> float:
    """From fork to exit, checkpoints included; the median of three."""
    return median(train_child(directory / f"timing-{number}").seconds for number in range(3))


def prove(runs: int, seed: int, directory: Path) -> Tally:
    tally = Tally(seed, reference_digest())
    draw = random.Random(seed)
    seconds = usual_seconds(directory)
    for number in range(runs):
        run = directory / f"run-{number:03}"
        one_run(run, draw, seconds, tally)
        shutil.rmtree(run)
        if sys.stderr.isatty():
            print(f"\r  {number + 1}/{runs} runs, {tally.kills} kills", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    for name in ("nothing", *CONTROLS):
        tally.controls[name] = control(directory / f"control-{name}", name)
    return tally


def describe(tally: Tally) -> str:
    phases = ", ".join(f"{count} {phase}" for phase, count in sorted(tally.kill_found.items()))
    steps = tally.resumed_from
    lines = [
        f"reference SHA-256      {tally.reference}",
        f"identical              {tally.identical} of {tally.runs} runs of {STEPS} steps",
        f"kills (SIGKILL)        {tally.kills}: {phases}",
        f"last resume            from step {min(steps)} to {max(steps)}, median {median(steps):g}, "
        f"{steps.count(0)} from scratch",
    ]
    for name, digest in tally.controls.items():
        verdict = "same" if digest == tally.reference else "differs"
        lines.append(f"control without {name:<8}{verdict:<8}{digest[:16]}")
    return "\n".join([*lines, *(f"FAULT: {fault}" for fault in tally.faults())])


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.e2e.resume_identity", description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, help="of the moments to kill at; default: random")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--directory", type=Path, help="where to put the runs; default: temporary")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed={seed} (rerun with --seed {seed})", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="resume-identity-", dir=options.directory) as directory:
        tally = prove(options.runs, seed, Path(directory))
    if options.json:
        print(json.dumps({**vars(tally), "faults": tally.faults()}))
    else:
        print(describe(tally))
    return 1 if tally.faults() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
