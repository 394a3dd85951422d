"""Does a training that is resumed in a new process end as one that was not interrupted?

This module is the program of each of the processes: it trains by deterministic
algorithms, from the start with a checkpoint in the middle, or from that checkpoint on.
"""

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import deepfreeze as df
from examples.digest import sha256, training_digest
from lab.measure.case import ToolError
from lab.measure.devices import Budget, Lines
from lab.measure.program import ask
from lab.networks import gpu_workloads as models
from lab.networks.torch_workloads import Training
from lab.programs.answer import carry_out
from lab.writers.loop import Saver

STEPS, MIDDLE = 6, 3
CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # without it, cuBLAS is not deterministic


@dataclass(frozen=True)
class Job:
    """What one process does."""

    workload: str
    device: str
    quick: bool
    seed: int
    run: str  # directory
    resumes: bool


@dataclass
class Outcome:
    started_from: int
    losses: list[str]  # as hexadecimal, so that every bit counts
    digest: str


def train(job: Job) -> Outcome:
    df.determinism(job.seed)
    workload = models.workload(job.workload, job.device, quick=job.quick)
    training = workload.build(job.seed, in_backward=False)
    state = {**training.state, "rng": df.RNG()}
    with df.Checkpointer(job.run) as ckpt:
        start = (ckpt.restore(state) or 0) if job.resumes else 0
        ckpt.attach(training.optimizers["all"])
        losses = train_steps(training, ckpt, state, start)
    digest = sha256(training_digest(state), device_generators(job.device))
    return Outcome(start, losses, digest)


def train_steps(
    training: Training, ckpt: df.Checkpointer, state: dict[str, Any], start: int
) -> list[str]:
    losses = []
    nothing = Saver(training, ckpt.path, 1)
    for step in range(start + 1, STEPS + 1):
        losses.append(training.train_step(step, nothing).hex())
        if step == MIDDLE:
            ckpt.save(step, state)  # captured beside the steps that follow
    return losses


def device_generators(device: str) -> list[torch.Tensor]:
    return torch.cuda.get_rng_state_all() if device == "cuda" else []


def in_new_process(job: Job, budget: Budget) -> Outcome:
    """ToolError: what is wrong with it, or that it takes too long."""
    program, place = Path(sys.executable), Path(job.run).parent
    try:
        answer = ask(
            program, "lab.experiments.gpu.resume", asdict(job), place,
            seconds_max=budget.left_seconds(), variables=CUBLAS,
        )  # fmt: skip
    except TimeoutError:
        raise ToolError("the time was over") from None
    return Outcome(**answer)


def compare(job: Job, budget: Budget) -> dict[str, Any]:
    whole = in_new_process(job, budget)
    resumed = in_new_process(Job(**{**asdict(job), "resumes": True}), budget)
    same = whole.digest == resumed.digest and whole.losses[MIDDLE:] == resumed.losses
    return {
        "steps": STEPS,
        "resumed_from": resumed.started_from,
        "losses": whole.losses,
        "losses_resumed": resumed.losses,
        "digest": whole.digest,
        "digest_resumed": resumed.digest,
        "same": same and resumed.started_from == MIDDLE,
    }


def run(options: argparse.Namespace, seed: int, place: Path, lines: Lines, budget: Budget) -> int:
    status = 0
    for name in options.workload or models.MODELS:
        directory = str((place / name).resolve())
        job = Job(name, options.device, options.quick, seed, directory, resumes=False)
        try:
            found = compare(job, budget)
        except ToolError as error:
            found = {"same": False, "error": str(error)}
        lines.add("resume", {"workload": name, **found})
        status = status if found["same"] else 1
    return status


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], lambda request: asdict(train(Job(**request)))))
