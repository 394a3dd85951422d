"""Does a training that is resumed in a new process end as one that was not interrupted?

`python -m lab.experiments.gpu.resume JOB` is one of the processes: it trains by deterministic
algorithms, from the start with a checkpoint in the middle, or from that checkpoint on.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import deepfreeze as df
from examples.digest import sha256, training_digest
from lab.measure.devices import Budget, Lines
from lab.networks import gpu_workloads as models
from lab.networks.torch_workloads import Training
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
    """Raises what is wrong with it: its exit status and last line, or that it takes too long."""
    command = [sys.executable, "-m", "lab.experiments.gpu.resume", json.dumps(asdict(job))]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **CUBLAS},
            capture_output=True,
            text=True,
            check=False,
            timeout=budget.left_seconds(),
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError("the time was over") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise RuntimeError(f"exit status {done.returncode}: {last}")
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


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
        except RuntimeError as error:
            found = {"same": False, "error": str(error)}
        lines.add("resume", {"workload": name, **found})
        status = status if found["same"] else 1
    return status


if __name__ == "__main__":
    print(json.dumps(asdict(train(Job(**json.loads(sys.argv[1]))))))
