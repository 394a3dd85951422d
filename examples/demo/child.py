"""Runs one training process, follows its progress, and may kill it at a chosen moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.demo.train import Outcome

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Job:
    """The settings that all processes of one workload share."""

    workload: str
    full: bool
    threads: int
    steps: int
    mode: str = "window"
    until: int = 0  # 0: to the end

    def command(self, run: Path | None) -> list[str]:
        command = [sys.executable, "-m", "examples.demo.train", self.workload]
        command += ["--threads", str(self.threads), "--mode", self.mode]
        command += ["--full"] if self.full else []
        command += ["--until", str(self.until)] if self.until else []
        command += ["--run", str(run)] if run is not None else []
        return command


@dataclass(frozen=True)
class Kill:
    """SIGKILL, so many seconds after the child said that a step was done."""

    after_step: int
    delay: float


Progress = Callable[[int], None]


class ChildError(RuntimeError):
    """The training process ended without a result."""


def start(job: Job, run: Path | None) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(
        job.command(run), stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )


def messages(child: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert child.stdout is not None
    for line in child.stdout:
        yield json.loads(line)


def run_to_end(job: Job, run: Path | None, progress: Progress) -> Outcome:
    result: dict[str, Any] | None = None
    with start(job, run) as child:
        for message in messages(child):
            if "step" in message:
                progress(message["step"])
            result = message.get("result", result)
    if child.returncode != 0 or result is None:
        raise ChildError(f"{' '.join(job.command(run))}: exit status {child.returncode}")
    return Outcome(**result)


def run_until_killed(job: Job, run: Path, kill: Kill, progress: Progress) -> None:
    with start(job, run) as child:
        for message in messages(child):
            if "step" not in message:
                continue
            progress(message["step"])
            if message["step"] == kill.after_step:
                time.sleep(kill.delay)
                child.send_signal(signal.SIGKILL)
    if child.returncode != -signal.SIGKILL:
        raise ChildError(f"{' '.join(job.command(run))}: ended before it was killed")


def draw_kill(draw: random.Random, job: Job, step_seconds: float) -> Kill:
    """A moment between the first committed checkpoint and the end.

    A save waits for the one before it, so after step 2 the checkpoint of step 1 is committed.
    """
    return Kill(draw.randint(2, job.steps - 2), draw.uniform(0.0, step_seconds))
