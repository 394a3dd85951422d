"""A rank of torch.distributed: how it joins, talks to the others, and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


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
