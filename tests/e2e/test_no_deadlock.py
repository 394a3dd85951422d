"""A fence never hangs: whatever fails, ends or forks while it waits, or before it could.

Each case is a process with a time limit. Its commits must equal the state at save(), and
and after a fault of the disk that is over the next save must be whole again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import deepfreeze as df
from tests.support import warm_python

from .deadlock_cases import STEPS, WIDTH, digest_of

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 60
LATE = "capture.background=sleep:150"  # the fence comes first, on a busy machine too, and copies
SLOW_DISK = "part.write=sleep:60"
FAULTS = ("part.write=error:EIO@1", "part.write=error:ENOSPC@3", "part.write=error:EIO")


@dataclass
class Done:
    """The exit code of a case, and its output."""

    code: int
    stderr: str
    digests: dict[int, str] = field(default_factory=dict)  # at save(), by step
    said: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert "Traceback" not in self.stderr or self.code != 0, self.stderr


def run_case(case: str, run: Path, mode: str = "window", fail: str = LATE) -> Done:
    """Fails if the time limit is over, with the stacks of all threads."""
    command = [sys.executable, "-m", "tests.e2e.deadlock_cases", case, str(run), "--mode", mode]
    child = warm_python.start(
        command, cwd=ROOT, env={**os.environ, "DEEPFREEZE_FAIL": fail},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        stdout, stderr = child.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGABRT)  # and of its children
        _, stderr = child.communicate()
        pytest.fail(f"{case} in mode {mode} with {fail} hangs: {stderr}")
    return done_of(child.returncode, stdout, stderr)


def done_of(code: int, stdout: str, stderr: str) -> Done:
    done = Done(code, stderr)
    for line in map(json.loads, stdout.splitlines()):
        if "digest" in line:
            done.digests[line["step"]] = line["digest"]
        else:
            done.said.update(line)
    return done


def committed(run: Path, done: Done) -> list[int]:
    """The steps on disk; each is whole, and equals the state at its save."""
    with df.Checkpointer(run) as ckpt:
        steps = ckpt.steps()
        for step in steps:
            model = nn.Linear(WIDTH, WIDTH, bias=False)
            optim = torch.optim.AdamW(model.parameters())
            assert ckpt.restore({"model": model, "optim": optim}, step=step) == step
            assert digest_of(model, optim) == done.digests[step], f"step {step} is wrong"
    return steps


@pytest.mark.parametrize(
    ("mode", "fail"),
    [(mode, fail) for mode in ("window", "ring") for fail in FAULTS] + [("early", FAULTS[1])],
)
def test_a_disk_that_fails_under_a_fence(tmp_path: Path, mode: str, fail: str) -> None:
    done = run_case("loop", tmp_path / "run", mode, f"{LATE};{fail}")
    assert done.code == 0, done.stderr
    failed = sorted(map(int, done.said["failed"]))
    once = "@" in fail
    assert len(failed) == (1 if once else STEPS)
    assert all("part.write" in text or "write" in text for text in done.said["failed"].values())
    # In a ring every write of which fails, the capture may be given up before the fence comes.
    assert done.said["fenced"] > 0 or (mode.startswith("ring") and not once)
    expected = [step for step in range(1, STEPS + 1) if step not in failed]
    assert committed(tmp_path / "run", done) == expected


@pytest.mark.parametrize("mode", ["ring", "ring early"])
def test_a_fence_that_waits_for_a_slow_disk(tmp_path: Path, mode: str) -> None:
    done = run_case("loop", tmp_path / "run", mode, f"{LATE};{SLOW_DISK}")
    assert (done.code, done.said["failed"]) == (0, {}), done.stderr
    assert committed(tmp_path / "run", done) == list(range(1, STEPS + 1))


@pytest.mark.parametrize(
    ("case", "mode", "code"),
    [
        ("close_with_open_window", "window", 0),
        ("close_with_open_window", "ring", 0),
        ("end_with_open_window", "window", 0),
        ("end_with_open_window", "ring", 0),
        ("end_with_open_window", "early", 0),
        ("exit_with_open_window", "window", 3),
        ("exception_in_training", "ring", 1),
        ("exception_inside_step", "window", 1),
        ("exception_inside_step", "early", 1),
        ("detach_with_open_window", "ring", 0),
        ("collect_with_open_window", "window", 0),
        ("collect_with_open_window", "ring", 0),
        ("collect_with_open_window", "early", 0),
        ("sigterm_in_window", "window", -signal.SIGTERM),
        ("sigterm_in_window", "ring", -signal.SIGTERM),
    ],
)
def test_an_end_with_an_open_window_keeps_the_save(
    tmp_path: Path, case: str, mode: str, code: int
) -> None:
    done = run_case(case, tmp_path / "run", mode)
    assert done.code == code, done.stderr
    assert committed(tmp_path / "run", done) == [1]


@pytest.mark.parametrize("mode", ["window", "ring"])
def test_sigterm_while_the_fence_waits(tmp_path: Path, mode: str) -> None:
    done = run_case("sigterm_in_fence", tmp_path / "run", mode, f"{LATE};{SLOW_DISK}")
    assert done.code == -signal.SIGTERM, done.stderr
    steps = committed(tmp_path / "run", done)
    # The last one said may have been interrupted before its save() began.
    assert steps[-1] >= max(done.digests) - 1


@pytest.mark.parametrize("mode", ["window", "ring", "early"])
def test_children_step_while_the_window_is_open(tmp_path: Path, mode: str) -> None:
    done = run_case("fork_and_step", tmp_path / "run", mode)
    assert done.code == 0, done.stderr
    assert (done.said["child"], done.said["failed"]) == (0, {})
    assert committed(tmp_path / "run", done) == [1, 2, 3]


@pytest.mark.parametrize("mode", ["window", "ring"])
@pytest.mark.parametrize(
    "case", ["step_in_other_thread", "fences_in_two_threads", "wait_with_open_window"]
)
def test_other_threads_and_other_waits(tmp_path: Path, case: str, mode: str) -> None:
    done = run_case(case, tmp_path / "run", mode)
    assert (done.code, done.said.get("failed")) == (0, {}), done.stderr
    assert committed(tmp_path / "run", done) == list(range(1, STEPS + 1))
