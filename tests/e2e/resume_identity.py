"""Resume identity: `python -m tests.e2e.resume_identity --runs 100 [--mode M] [--seed S] [--json]`.

In each mode of capture, each run is killed with SIGKILL at a random time (start-up included, and
perhaps again), resumed in a new process until it ends, and must end with the SHA-256 of the run
that had no checkpoints at all. Negative controls forget one part of the state and must end
differently. Without fences, captures are torn: such saves must fail, and all others be right.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch._dynamo  # noqa: F401  an optimizer's first use imports it: once, not in every child

from .command import announce_seed, conclude, in_own_process, make_parser, progress, scratch
from .endings import faults_of_endings
from .fork_server import Ended, Say, fork_and_run
from .small_run import MODES, STEPS, Ending, Order, train, train_without_checkpoints

MODULE = "tests.e2e.resume_identity"
CONTROLS = ("rng", "data", "moment", "buffer")
CONTROL_STEP = STEPS // 2 + 1  # inside an epoch
SECOND_KILL_CHANCE = 0.4
KILLS_MAX = 5  # of one run
RUNS_THAT_SPREAD = 16  # with so many of a mode, some kill comes inside a save
# Fail points are armed when the package is loaded, so each of these is a process of its own.
SOMETIMES_LATE = "capture.background=sleep:1"  # fences and the background copier share the work
ALWAYS_LATE = "capture.background=sleep:100"  # so that tensors without a fence are torn


@dataclass
class Unfenced:
    """The results of a run without fences."""

    torn: int = 0
    committed: list[int] = field(default_factory=list)
    tried: int = 0  # of these, that a run with fences went on from
    wrong: list[int] = field(default_factory=list)  # steps from which a resume ended differently


@dataclass
class Tally:
    """The results of all runs of one mode."""

    mode: str
    seed: int
    reference: str
    runs: int = 0
    identical: int = 0
    kills: int = 0
    redrawn: int = 0  # runs that ended before their kill came: done again
    kill_found: dict[str, int] = field(default_factory=dict)
    resumed_from: list[int] = field(default_factory=list)
    controls: dict[str, str] = field(default_factory=dict)
    saves: int = 0  # these four: of the processes that came to their end
    lazy: int = 0
    fenced: int = 0
    early: int = 0
    unfenced: Unfenced | None = None

    def faults(self) -> list[str]:
        faults = faults_of_endings(
            self.runs, self.identical, self.reference, self.controls, CONTROLS
        )
        if self.mode != "eager":
            faults += self._lazy_faults()
        if self.runs >= RUNS_THAT_SPREAD:
            faults += self._kills_without_power()
        return [f"{self.mode}: {fault}" for fault in faults]

    def _kills_without_power(self) -> list[str]:
        faults = []
        if self.kill_found.get("inside a save", 0) == 0:
            faults.append("no kill came inside a save")
        late = sum(step > 0 for step in self.resumed_from)
        if late <= self.runs // 2:
            faults.append(f"only {late} of {self.runs} runs resumed from a checkpoint")
        return faults

    def _lazy_faults(self) -> list[str]:
        faults = []
        if self.lazy != self.saves or self.fenced == 0:
            faults.append(f"of {self.saves} saves {self.lazy} were lazy, {self.fenced} fenced")
        if self.mode == "after_update" and self.early == 0:
            faults.append("no capture began inside backward()")
        if self.unfenced is None or self.unfenced.torn == 0 or not self.unfenced.committed:
            faults.append(f"the control without fences has no power: {self.unfenced}")
        elif self.unfenced.tried == 0:
            faults.append("no run went on from a step of the control without fences")
        elif self.unfenced.wrong:
            faults.append(f"without fences, steps {self.unfenced.wrong} resumed to another end")
        return faults


def train_child(run: Path, order: Order, kill: float | None = None) -> Ended:
    """Reports the step resumed from, and in a second line its ending if it came to it."""

    def work(say: Say) -> None:
        ending = train(run, order, lambda step: say(f"{step}\n"))
        say(json.dumps(asdict(ending)))

    return fork_and_run(work, kill)


def ending_of(ended: Ended) -> tuple[int, Ending]:
    """The first step of a child that was not killed, and its ending."""
    resumed_from, ending = ended.report.splitlines()
    return int(resumed_from), Ending(**json.loads(ending))


def reference_digest(mode: str) -> str:
    return fork_and_run(lambda say: say(train_without_checkpoints(mode))).report


def state_of_disk(run: Path) -> str:
    """The phase in which the kill came, told by the files on disk."""
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
        moment = draw.uniform(0.0, seconds) if again else None
        ended = train_child(run, Order(tally.mode), moment)
        if ended.killed:
            kills += 1
            found = state_of_disk(run)
            tally.kill_found[found] = tally.kill_found.get(found, 0) + 1
        elif kills == 0:
            tally.redrawn += 1
            shutil.rmtree(run)
        else:
            break
    tally.kills += kills
    add_run(tally, *ending_of(ended))


def add_run(tally: Tally, resumed_from: int, ending: Ending) -> None:
    tally.runs += 1
    tally.resumed_from.append(resumed_from)
    tally.identical += ending.digest == tally.reference
    tally.saves += ending.saves
    tally.lazy += ending.lazy
    tally.fenced += ending.fenced
    tally.early += ending.early


def control(run: Path, mode: str, forget: str) -> str:
    """Dies at a step inside an epoch, is resumed there; the digest at the end."""
    died = train_child(run, Order(mode, forget, die_after=CONTROL_STEP))
    assert died.killed, "the control did not die"
    resumed_from, ending = ending_of(train_child(run, Order(mode, forget)))
    assert resumed_from == CONTROL_STEP, f"the control resumed from {resumed_from}"
    return ending.digest


def prove_unfenced(mode: str, branches: int, directory: Path) -> Unfenced:
    """Trains without fences, then goes on, with fences, from so many steps that were committed."""
    reference = reference_digest(mode)
    run = directory / "unfenced"
    _, unfenced = ending_of(train_child(run, Order(mode, "fence")))
    found = Unfenced(unfenced.torn, unfenced.durable)
    stride = -(-len(unfenced.durable) // branches) or 1
    for step in unfenced.durable[::stride]:
        branch = directory / f"unfenced-{step}"
        shutil.copytree(run, branch)
        found.tried += 1
        began, ending = ending_of(train_child(branch, Order(mode, from_step=step)))
        if began != step or ending.digest != reference:
            found.wrong.append(step)
    return found


def usual_seconds(directory: Path, mode: str) -> float:
    """From fork to exit, checkpoints included; the median of three."""
    runs = (directory / f"timing-{number}" for number in range(3))
    return median(train_child(run, Order(mode)).seconds for run in runs)


def prove(mode: str, runs: int, seed: int, directory: Path) -> Tally:
    """In this process, which must have no threads: it forks."""
    tally = Tally(mode, seed, reference_digest(mode))
    draw = random.Random(f"{seed} {mode}")
    seconds = usual_seconds(directory, mode)
    for number in range(runs):
        run = directory / f"run-{number:03}"
        one_run(run, draw, seconds, tally)
        shutil.rmtree(run)
        progress(number + 1, runs, f"runs in mode {mode}, {tally.kills} kills")
    for name in ("nothing", *CONTROLS):
        tally.controls[name] = control(directory / f"control-{name}", mode, name)
    return tally


def figures_of(mode: str, options: argparse.Namespace, seed: int, part: str) -> dict[str, Any]:
    """The figures of one mode's runs, or of its control without fences."""
    late = SOMETIMES_LATE if part == "runs" else ALWAYS_LATE
    arguments = {"mode": mode, "part": part, "seed": seed, "runs": options.runs}
    arguments |= {"branches": options.branches}
    fail_points = "" if mode == "eager" else late
    figures: dict[str, Any] = in_own_process(MODULE, arguments, options, fail_points)
    return figures


def prove_in_own_processes(mode: str, options: argparse.Namespace, seed: int) -> Tally:
    figures = figures_of(mode, options, seed, "runs")
    tally = Tally(**figures)
    if mode != "eager":
        tally.unfenced = Unfenced(**figures_of(mode, options, seed, "unfenced"))
    return tally


def run_part(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    with scratch(options, f"resume-{options.mode}") as name:
        if options.part == "unfenced":
            return asdict(prove_unfenced(options.mode, options.branches, Path(name)))
        return asdict(prove(options.mode, options.runs, seed, Path(name)))


def describe(tally: Tally) -> str:
    phases = ", ".join(f"{count} {phase}" for phase, count in sorted(tally.kill_found.items()))
    steps = tally.resumed_from
    rows = [
        ("mode", tally.mode),
        ("reference SHA-256", tally.reference),
        ("identical", f"{tally.identical} of {tally.runs} runs of {STEPS} steps"),
        ("kills (SIGKILL)", f"{tally.kills}: {phases}"),
        (
            "last resume",
            f"from step {min(steps)} to {max(steps)}, median {median(steps):g}, "
            f"{steps.count(0)} from scratch",
        ),
        (
            "saves that were",
            f"lazy {tally.lazy} of {tally.saves}, fenced {tally.fenced}, early {tally.early}",
        ),
    ]
    for name, digest in tally.controls.items():
        verdict = "same" if digest == tally.reference else "differs"
        rows.append((f"control without {name}", f"{verdict:<8}{digest[:16]}"))
    if tally.unfenced is not None:
        good = tally.unfenced.tried - len(tally.unfenced.wrong)
        verdict = f"{tally.unfenced.torn} saves failed, {good} resume to the reference, "
        rows.append(("control without fences", verdict + f"{len(tally.unfenced.wrong)} do not"))
    return "\n".join(f"{name:<24}{value}" for name, value in rows)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__)
    parser.add_argument("--runs", type=int, default=100, help="of each mode")
    parser.add_argument("--branches", type=int, default=STEPS, help="steps, at most, of a run "
                        "without fences that runs with fences go on from")  # fmt: skip
    parser.add_argument("--mode", choices=[*MODES, "all"], default="all")
    parser.add_argument("--part", choices=["runs", "unfenced"], help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.part:
        print(json.dumps(run_part(options, options.seed)))
        return 0
    seed = announce_seed(options)
    tallies = []
    for mode in MODES if options.mode == "all" else [options.mode]:
        tallies.append(prove_in_own_processes(mode, options, seed))
        print(f"{mode}: done", file=sys.stderr, flush=True)
    faults = [fault for tally in tallies for fault in tally.faults()]
    figures = {"seed": seed, "modes": [asdict(tally) for tally in tallies], "faults": faults}
    return conclude(options, "\n\n".join(map(describe, tallies)), figures, faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
