"""The demo's measurements, in a form for people and in one for programs."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from examples.demo.child import Job, Kill
from examples.demo.train import Outcome

SAVES_FOR_P99 = 200  # with fewer, the maximum is the honest figure


@dataclass
class Trial:
    """Everything the demo did with one workload."""

    title: str
    job: Job
    plain: list[Outcome] = field(default_factory=list)
    checkpointed: list[Outcome] = field(default_factory=list)
    kill: Kill | None = None
    resumed: Outcome | None = None
    plain_there: Outcome | None = None  # run up to the step where `resumed` begins, if ends differ
    program_faults: list[str] = field(default_factory=list)

    def outcomes(self) -> list[Outcome]:
        return self.plain + self.checkpointed + ([self.resumed] if self.resumed else [])

    def stalls(self) -> list[float]:
        return sorted(stall for outcome in self.checkpointed for stall in outcome.stalls)

    def fences(self) -> list[float]:
        return [fence for outcome in self.checkpointed for fence in outcome.fences]

    def in_save(self) -> list[float]:
        return [
            stall - fence
            for outcome in self.checkpointed
            for stall, fence in zip(outcome.stalls, outcome.fences, strict=True)
        ]

    def ratios(self) -> list[float]:
        pairs = zip(self.checkpointed, self.plain, strict=True)
        return [with_saves.seconds / without.seconds for with_saves, without in pairs]

    def rates(self) -> list[float]:
        """GB/s from save() to committed, one per checkpoint."""
        return [
            outcome.bytes / seconds / 1e9
            for outcome in self.checkpointed
            for seconds in outcome.durable
        ]

    def faults(self) -> list[str]:
        """The results that must not occur; empty if the demo succeeds."""
        reference = self.plain[0].digest
        faults = list(self.program_faults)
        for outcome in self.outcomes():
            if outcome.digest != reference:
                faults.append(f"a final state has SHA-256 {outcome.digest}, not the reference's")
            if outcome.failed_saves:
                faults.append(f"{outcome.failed_saves} checkpoints failed")
        if not all(outcome.guarded_bytes for outcome in self.checkpointed):
            faults.append("nothing was captured while training went on")
        if self.resumed is None or self.kill is None:
            return [*faults, "the killed run was not resumed"]
        if self.resumed.resumed_from < self.kill.after_step - 1:
            faults.append(f"resumed from step {self.resumed.resumed_from}: checkpoints were lost")
        if self.plain_there is not None:
            faults.append(where_it_began(self.resumed, self.plain_there))
        return faults


def where_it_began(resumed: Outcome, plain_there: Outcome) -> str:
    """Tells whether the checkpoint or the training after it is to blame for a different end."""
    place = f"what was restored at step {resumed.resumed_from}"
    if resumed.restored_digest != plain_there.digest:
        return f"{place} is not what a training without checkpoints has there"
    return (
        f"{place} is bit for bit what a training without checkpoints has there: "
        "from the same state, two processes computed differently"
    )


def quantile(values: list[float], share: float) -> float:
    """The smallest of the sorted values that `share` of them don't exceed."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


def worst_stall(stalls: list[float]) -> tuple[str, float]:
    if len(stalls) >= SAVES_FOR_P99:
        return "p99", quantile(stalls, 0.99)
    return f"max of {len(stalls)}", stalls[-1]


def summary(trial: Trial) -> dict[str, Any]:
    stalls = trial.stalls()
    worst_name, worst = worst_stall(stalls)
    assert trial.resumed is not None
    assert trial.kill is not None
    return {
        "workload": trial.job.workload,
        "title": trial.title,
        "steps": trial.job.steps,
        "threads": trial.job.threads,
        "mode": trial.job.mode,
        "checkpoint_bytes": trial.checkpointed[0].bytes,
        "guarded_bytes": trial.checkpointed[0].guarded_bytes,
        "step_seconds_plain": median(one.seconds / trial.job.steps for one in trial.plain),
        "stall_seconds_median": median(stalls),
        "stall_seconds_worst": worst,
        "stall_worst_is": worst_name,
        "stall_count": len(stalls),
        "save_seconds_median": median(trial.in_save()),
        "fence_seconds_median": median(trial.fences()),
        "run_time_ratio": sum(trial.ratios()) / len(trial.ratios()),
        "run_time_ratio_by_round": trial.ratios(),
        "durable_gb_per_second_median": median(trial.rates()),
        "killed_after_step": trial.kill.after_step,
        "kill_delay_seconds": trial.kill.delay,
        "resumed_from": trial.resumed.resumed_from,
        "reference_sha256": trial.plain[0].digest,
        "resumed_sha256": trial.resumed.digest,
        "restored_sha256": trial.resumed.restored_digest,
        "identical": trial.resumed.digest == trial.plain[0].digest,
        "faults": trial.faults(),
    }


def text(trial: Trial) -> str:
    """The summary as lines for people."""
    s = summary(trial)
    rounds = ", ".join(f"{ratio:.2f}" for ratio in s["run_time_ratio_by_round"])
    same = "yes" if s["identical"] else "NO"
    rows = [
        (
            "training",
            f"{s['steps']} steps of {s['step_seconds_plain']:.2f} s, {s['threads']} threads",
        ),
        (
            "checkpoint",
            f"{s['checkpoint_bytes'] / 1e6:,.1f} MB after every step, "
            f"{s['guarded_bytes'] / 1e6:,.1f} MB of it copied while training goes on",
        ),
        (
            "stall per checkpoint",
            f"median {s['stall_seconds_median'] * 1e3:.1f} ms "
            f"(of save() {s['save_seconds_median'] * 1e3:.1f} ms, "
            f"of its fences {s['fence_seconds_median'] * 1e3:.1f} ms), "
            f"{s['stall_worst_is']} {s['stall_seconds_worst'] * 1e3:.1f} ms",
        ),
        (
            "run time",
            f"{s['run_time_ratio']:.2f} x without checkpoints (rounds: {rounds}), "
            "until the last one is durable",
        ),
        (
            "to durable",
            f"{s['durable_gb_per_second_median']:.2f} GB/s, save() to committed, median",
        ),
        ("killed", f"SIGKILL {s['kill_delay_seconds']:.3f} s after step {s['killed_after_step']}"),
        ("resumed from", f"step {s['resumed_from']}, in a new process, to step {s['steps']}"),
        ("reference SHA-256", str(s["reference_sha256"])),
        ("resumed SHA-256", str(s["resumed_sha256"])),
        ("bit for bit the same", same),
    ]
    lines = [s["title"], *(f"  {name:<21} {value}" for name, value in rows)]
    return "\n".join([*lines, *(f"  FAULT: {fault}" for fault in s["faults"])])


class ProgressLine:
    """One line on a terminal that is overwritten; without a terminal, one line for each job."""

    def __init__(self, label: str, total: int) -> None:
        self.label = label
        self.total = total
        self.terminal = sys.stderr.isatty()
        if self.terminal:
            self(0)
        else:
            print(f"  {label}", file=sys.stderr, flush=True)

    def __call__(self, step: int) -> None:
        if self.terminal:
            filled = 24 * step // self.total
            bar = "#" * filled + "." * (24 - filled)
            line = f"\r\033[K  {self.label:<34} [{bar}] {step}/{self.total}"
            print(line, end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
