"""A training that saves at each step, and tells of each: `python -m tests.faults.saving_each_step`.

For tier_outage. It ends when its standard input does, and pauses when it is told to.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from pathlib import Path

import torch
from torch import nn

import deepfreeze as df

KEPT_NEAR = 2
KEPT_FAR = 20
STEP_SECONDS = 0.05  # at least
PACE_SECONDS_MAX = 10.0
END, HOLD, NOTHING = b"", b"h", b"nothing"
HELD_FOR = 3  # checkpoints that arrive
WIDTH = 256
CLOSE_SECONDS = 60.0


def told() -> bytes:
    """END, HOLD, or nothing yet."""
    if not select.select([sys.stdin], [], [], 0)[0]:
        return NOTHING
    return os.read(sys.stdin.fileno(), 1)


def attempts_in(run: Path) -> int:
    return sum(name.startswith("step-") for name in os.listdir(run))


def bytes_in(run: Path) -> int:
    """Directories and files may go while they are counted."""
    found = 0
    for directory, _, names in os.walk(run):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found += os.stat(f"{directory}/{name}").st_size
    return found


def let_the_tier_follow(ckpt: df.Checkpointer, committed: int) -> None:
    """While the tier is there, a step lasts until two more checkpoints have arrived, or all have.

    Otherwise a disk that is slower than the training would never get an older one.
    """
    until = time.monotonic() + PACE_SECONDS_MAX
    while time.monotonic() < until:
        (status,) = ckpt.tier_status()
        if status.error is not None or status.waiting <= 1 or status.committed >= committed + 2:
            return
        time.sleep(0.005)


def wait_for_arrivals(ckpt: df.Checkpointer) -> None:
    """The order in which they arrive is to be told, also if the next steps come quicker."""
    until = time.monotonic() + CLOSE_SECONDS
    arrived = ckpt.tier_status()[0].committed + HELD_FOR
    while ckpt.tier_status()[0].committed < arrived and time.monotonic() < until:
        time.sleep(0.005)


def train(near: Path, far: Path) -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(32, WIDTH)
    tier = df.tier(far, keep=df.keep(last=KEPT_FAR), close_seconds=CLOSE_SECONDS)
    with df.Checkpointer(near, keep=df.keep(last=KEPT_NEAR), tiers=[tier]) as ckpt:
        step = 0
        while (word := told()) != END:
            if word == HOLD:
                wait_for_arrivals(ckpt)
            step += 1
            until = time.monotonic() + STEP_SECONDS
            optimizer.zero_grad()
            model(batch).square().sum().backward()
            optimizer.step()
            began = time.monotonic()
            ckpt.save(step, {"model": model, "optimizer": optimizer})
            stall = time.monotonic() - began
            (status,) = ckpt.tier_status()
            said = {
                "step": step,
                "saved_ns": time.time_ns(),  # to be compared with the times of files
                "stall": stall,
                "attempts": attempts_in(near),
                "bytes": bytes_in(near),
                "waiting": status.waiting,
                "committed": status.committed,
                "left_out": status.left_out,
                "failures": status.failures,
                "error": None if status.error is None else str(status.error),
            }
            print(json.dumps(said), flush=True)
            time.sleep(max(0.0, until - time.monotonic()))
            let_the_tier_follow(ckpt, status.committed)
        ckpt.wait()
        ckpt.drain(CLOSE_SECONDS)
        (status,) = ckpt.tier_status()
        counts = {"committed": status.committed, "left_out": status.left_out}
        print(json.dumps({"ended": step, "failed": ckpt.failed_saves, **counts}), flush=True)


if __name__ == "__main__":
    train(Path(sys.argv[1]), Path(sys.argv[2]))
