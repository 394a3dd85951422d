"""A small training for the recipes: digits, a checkpoint at every tenth step, farther tiers.

`python -m examples.recipes.train RUN [TIER…] [--steps N] [--agent DIRECTORY]`: goes on from the
newest checkpoint, ends in good order on SIGTERM or SIGUSR1 with exit code 75 ("try again"), and
with 0 once all steps are done.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import nn

import deepfreeze as df

TRY_AGAIN = 75  # EX_TEMPFAIL
EVERY = 10


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("tiers", nargs="*")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--agent", default="auto")
    chosen = parser.parse_args()

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: stop.set())

    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters())
    state = {"model": model, "optimizer": optimizer}

    tiers = [df.tier(path, keep=df.keep(last=3)) for path in chosen.tiers]
    with df.Checkpointer(
        chosen.run,
        every=df.every(steps=EVERY),
        keep=df.keep(last=2),
        tiers=tiers,
        agent=chosen.agent,
    ) as ckpt:
        ckpt.attach(optimizer)
        start = ckpt.restore(state) or 0
        print(f"goes on from step {start}", flush=True)
        for step in range(start + 1, chosen.steps + 1):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            ckpt.step(step, state)
            if stop.is_set():
                ckpt.save(step, state)
                print(f"told to end after step {step}", flush=True)
                return TRY_AGAIN
    loss = nn.functional.cross_entropy(model(inputs), labels)
    print(f"done: {chosen.steps} steps, loss {loss.item():.4f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
