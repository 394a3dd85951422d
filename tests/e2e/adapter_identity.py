"""Adapters: `python -m tests.e2e.adapter_identity --kills 50 [--seed S] [--json]`.

A frozen base with low-rank adapters, as PEFT makes them, in plain torch: checkpoints hold all of
it, and share the base's file by links. Each run is killed with SIGKILL at a random time, perhaps
several times, resumed in new processes whose base is wrecked until they restore it, and must end
with the SHA-256 of the run that had no checkpoints at all. Negative controls leave the base, or
one second moment of AdamW, out of the state, and must end differently.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch._dynamo  # an optimizer's first use imports it: once, not in every child
from torch import Tensor, nn

import deepfreeze as df
from examples.digest import seed_generators, training_digest

from .command import announce_seed, conclude, make_parser, progress, scratch
from .endings import faults_of_endings
from .fork_server import Ended, Say, fork_and_run
from .small_run import ForgetfulOptimizer, make_deterministic

MODULE = "tests.e2e.adapter_identity"
SEED = 35
WIDTH = 2_048  # one frozen layer: 16.8 MB, enough for a file that checkpoints share
RANK, BATCH = 40, 4  # an adapter has more than 64 KiB: less is copied before save() returns
STEPS = 24
SHARED_FROM = 6  # saves of a process: two find out, one is as before, two write the two copies
CONTROLS = ("base", "moment")
CONTROL_STEP = STEPS // 2
KILLS_MAX = 6  # of one run
ANOTHER_KILL_CHANCE = 0.5
KILLS_THAT_SPREAD = 20  # with so many, some come while files are shared


class Adapted(nn.Module):
    """A frozen layer and its low-rank adapter with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH)
        self.base.requires_grad_(False)
        self.dropout = nn.Dropout(0.1)
        self.down = nn.Linear(WIDTH, RANK, bias=False)
        self.up = nn.Linear(RANK, WIDTH, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.up(self.down(self.dropout(x)))
        return out


class Tuning:
    """The run before its first step; identical in every process."""

    def __init__(self) -> None:
        seed_generators(SEED)
        self.model = Adapted()
        trained = [each for each in self.model.parameters() if each.requires_grad]
        self.optim = torch.optim.AdamW(trained, lr=1e-3)
        self.whole: dict[str, Any] = {"model": self.model, "optim": self.optim, "rng": df.RNG()}

    def saved(self, forget: str) -> dict[str, Any]:
        """The state as given to DeepFreeze."""
        state = dict(self.whole)
        if forget == "moment":
            state["optim"] = ForgetfulOptimizer(self.optim)
        elif forget == "base":
            state["model"] = nn.ModuleList([self.model.down, self.model.up])
        return state

    def wreck(self) -> None:
        """Only a restore can give back the base."""
        with torch.no_grad():
            for parameter in self.model.base.parameters():
                parameter.fill_(0.5)

    def train_step(self) -> None:
        data = torch.randn(BATCH, WIDTH)
        self.optim.zero_grad(set_to_none=True)
        (self.model(data) - data.roll(1, 1)).square().mean().backward()
        self.optim.step()


@dataclass(frozen=True)
class Order:
    """The instructions for one process."""

    forget: str = ""
    die_after: int = 0  # SIGKILL itself once that step's checkpoint is durable


@dataclass
class Ending:
    """The results of a process that came to its end."""

    digest: str
    saves: int = 0
    shared: int = 0  # saves that linked the base's file
    lazy: int = 0


def train(run: Path, order: Order, say: Say) -> None:
    """Resumes or starts, reports the first step, saves every step, reports its ending."""
    make_deterministic()
    tuning = Tuning()
    state, handles = tuning.saved(order.forget), []
    with df.Checkpointer(run, keep=df.keep(last=3), profile="latency") as ckpt:
        if ckpt.steps():
            tuning.wreck()
        start = ckpt.restore(state) or 0
        say(f"{start}\n")
        ckpt.attach(tuning.optim)
        for step in range(start + 1, STEPS + 1):
            tuning.train_step()
            handle = ckpt.save(step, state)
            assert handle is not None
            handles.append(handle)
            if step == order.die_after:
                handle.wait("durable")
                os.kill(os.getpid(), signal.SIGKILL)
    assert ckpt.failed_saves == 0
    statuses = [handle.status() for handle in handles]
    ending = Ending(
        training_digest(tuning.whole),
        len(statuses),
        sum(each.bytes_shared > 0 for each in statuses),
        sum(each.guarded_bytes > 0 for each in statuses),
    )
    say(json.dumps(asdict(ending)))


def train_child(run: Path, order: Order, kill: float | None = None) -> Ended:
    return fork_and_run(lambda say: train(run, order, say), kill)


def ending_of(ended: Ended) -> tuple[int, Ending]:
    """The first step of a child that was not killed, and its ending."""
    resumed_from, ending = ended.report.splitlines()
    return int(resumed_from), Ending(**json.loads(ending))


def reference_digest() -> str:
    """Of the run without checkpoints."""

    def work(say: Say) -> None:
        make_deterministic()
        tuning = Tuning()
        for _ in range(STEPS):
            tuning.train_step()
        say(training_digest(tuning.whole))

    return fork_and_run(work).report


def linked_steps(run: Path) -> Iterator[str]:
    """Committed checkpoints with a file that an earlier one wrote."""
    for manifest in run.glob("step-*/manifest.json"):
        if any("origin" in file for file in json.loads(manifest.read_text())["files"]):
            yield manifest.parent.name


@dataclass
class Tally:
    """The results of all runs."""

    seed: int
    reference: str
    runs: int = 0
    identical: int = 0
    kills: int = 0
    kills_while_shared: int = 0  # they left checkpoints behind that share a file
    resumed_from: list[int] = field(default_factory=list)
    saves: int = 0  # of processes that came to their end
    shared: int = 0
    lazy: int = 0
    controls: dict[str, str] = field(default_factory=dict)

    def faults(self) -> list[str]:
        faults = faults_of_endings(
            self.runs, self.identical, self.reference, self.controls, CONTROLS
        )
        if self.lazy != self.saves:
            faults.append(f"only {self.lazy} of {self.saves} saves were captured behind training")
        if self.kills >= KILLS_THAT_SPREAD and self.kills_while_shared == 0:
            faults.append("no kill came while checkpoints shared a file")
        return faults


def one_run(run: Path, draw: random.Random, seconds: float, tally: Tally) -> None:
    """Kills and resumes until the run ends by itself."""
    kills, is_last = 0, False
    while not is_last:
        is_last = kills > 0 and (kills == KILLS_MAX or draw.random() > ANOTHER_KILL_CHANCE)
        ended = train_child(run, Order(), None if is_last else draw.uniform(0, seconds))
        if ended.killed:
            kills += 1
            tally.kills_while_shared += any(linked_steps(run))
        else:
            is_last = True
    tally.kills += kills
    resumed_from, ending = ending_of(ended)
    tally.runs += 1
    tally.resumed_from.append(resumed_from)
    tally.identical += ending.digest == tally.reference
    tally.saves += ending.saves
    tally.shared += ending.shared
    tally.lazy += ending.lazy


def control(run: Path, forget: str) -> str:
    """Dies at a step, is resumed there; the digest at the end."""
    died = train_child(run, Order(forget, die_after=CONTROL_STEP))
    assert died.killed, "the control did not die"
    resumed_from, ending = ending_of(train_child(run, Order(forget)))
    assert resumed_from == CONTROL_STEP, f"the control resumed from {resumed_from}"
    return ending.digest


def usual_seconds(directory: Path, tally: Tally) -> float:
    """From fork to exit, checkpoints included; they must share files."""
    ended = train_child(directory / "timing", Order())
    _, ending = ending_of(ended)
    wanted = STEPS - SHARED_FROM + 1
    assert ending.shared == wanted, f"{ending.shared} saves share a file, not {wanted}"
    assert ending.digest == tally.reference, "undisturbed, with checkpoints, it ends otherwise"
    return ended.seconds


def prove(kills: int, seed: int, directory: Path) -> Tally:
    """In this process, which must have no threads: it forks."""
    tally = Tally(seed, reference_digest())
    draw = random.Random(seed)
    seconds = usual_seconds(directory, tally)
    while tally.kills < kills:
        run = directory / f"run-{tally.runs:03}"
        one_run(run, draw, seconds, tally)
        shutil.rmtree(run)
        progress(min(tally.kills, kills), kills, "kills")
    for name in ("nothing", *CONTROLS):
        tally.controls[name] = control(directory / f"control-{name}", name)
    return tally


def describe(tally: Tally) -> str:
    steps = tally.resumed_from
    rows = [
        ("reference SHA-256", tally.reference),
        ("identical", f"{tally.identical} of {tally.runs} runs of {STEPS} steps"),
        (
            "adapter kills",
            f"{tally.kills}, {tally.kills_while_shared} of them while checkpoints shared a file",
        ),
        ("last resume", f"from step {min(steps)} to {max(steps)}, median {median(steps):g}"),
        ("saves", f"{tally.shared} of {tally.saves} linked the base, {tally.lazy} were lazy"),
    ]
    for name, digest in tally.controls.items():
        verdict = "same" if digest == tally.reference else "differs"
        rows.append((f"control without {name}", f"{verdict:<8}{digest[:16]}"))
    return "\n".join(f"{name:<24}{value}" for name, value in rows)


def main(arguments: list[str]) -> int:
    parser = make_parser(MODULE, __doc__)
    parser.add_argument("--kills", type=int, default=50)
    options = parser.parse_args(arguments)
    seed = announce_seed(options)
    with scratch(options, "adapter") as name:
        tally = prove(options.kills, seed, Path(name))
    faults = tally.faults()
    return conclude(options, describe(tally), {**asdict(tally), "faults": faults}, faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
