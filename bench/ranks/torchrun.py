"""Jobs of several ranks, as people start them, and what their rank 0 reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

SECONDS_MAX = 900.0  # of one job; beyond it, it hangs


def run_job(
    ranks: int, module: str, arguments: dict[str, Any], environment: dict[str, str] | None = None
) -> Any:
    """What report() was given by rank 0. RuntimeError with the job's output where it failed."""
    with tempfile.TemporaryDirectory(prefix="df-bench-ranks-") as place:
        out = Path(place) / "report.json"
        given = json.dumps({**arguments, "out": str(out)})
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(ranks), "-m", module, "--as-rank", given]
        own = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **(environment or {})}
        done = subprocess.run(
            command, env={**os.environ, **own}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
        if done.returncode != 0 or not out.exists():
            raise RuntimeError(f"{ranks} ranks of {module} failed:\n{done.stdout}")
        return json.loads(out.read_text())


def join() -> int:
    """The caller's rank, once all are there."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    return dist.get_rank()


def gathered(value: Any) -> list[Any]:
    """Every rank's, by rank."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def report(arguments: dict[str, Any], value: Any) -> None:
    if dist.get_rank() == 0:
        Path(arguments["out"]).write_text(json.dumps(value))
    dist.destroy_process_group()
