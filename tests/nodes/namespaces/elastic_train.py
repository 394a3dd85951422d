"""The program of elastic.py, as torchrun starts it: `elastic_train.py RUN LOGS STEPS`.

It restores, trains and saves after each step. A process of rank 1 ends itself once, if LOGS has a
file "strike" by then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import deepfreeze as df
from tests.ranks.training import Training

NEVER_SECONDS = 60.0


def note(logs: Path, line: dict[str, object]) -> None:
    """All machines have the same clock."""
    timed = {**line, "time": time.monotonic()}
    with (logs / f"{os.uname().nodename}.jsonl").open("a") as file:
        file.write(json.dumps(timed) + "\n")


def strike(logs: Path, rank: int) -> None:
    """As the kernel kills a process for its memory."""
    if rank == 1 and (logs / "strike").exists():
        (logs / "strike").unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def main(run: str, logs: Path, steps: int) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    training = Training("ddp", rank, world)
    with df.Checkpointer(
        run, near="node", protect=df.partner(), ranks=df.TorchRanks(), keep=df.keep(last=2)
    ) as ckpt:
        first = ckpt.restore(training.state) or 0
        places = ckpt.last_restore.tiers.values() if ckpt.last_restore else ()
        from_parity = sum("from parity" in str(place) for place in places)
        about = {"world": world, "rank": rank}
        note(logs, {"event": "restored", "step": first, "digest": training.digest(),
                    "from_parity": from_parity, **about})  # fmt: skip
        ckpt.attach(training.optimizer)
        for step in range(first + 1, steps + 1):
            training.step()
            note(logs, {"event": "begun", "step": step, "digest": training.digest(), **about})
            handle = ckpt.save(step, training.state)
            assert handle is not None
            handle.wait("protected", NEVER_SECONDS)
            note(logs, {"event": "protected", "step": step, **about})
            strike(logs, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
