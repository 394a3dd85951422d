"""Facts that two ranks are told, or keep apart: `python -m tests.ranks.cases NAME --json`.

Both ranks run each case, and it returns the faults that they found.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import deepfreeze as df
from tests.e2e.command import conclude, make_parser, scratch

from .job import Job, Say

WAIT_SECONDS = 60.0


def saved(ckpt: df.Checkpointer, step: int, state: Any) -> None:
    handle = ckpt.save(step, state)
    assert handle is not None
    handle.wait("durable")


def refusal(call: Callable[[], object]) -> str:
    """The name of the error, with its rank in front of the message."""
    try:
        call()
    except df.CheckpointError as error:
        return type(error).__name__
    return "nothing"


def ranks_ask_for_different_steps(rank: int, run: Path) -> list[str]:
    with df.Checkpointer(run) as ckpt:
        for step in (1, 2):
            saved(ckpt, step, {"w": torch.full((4,), float(step))})
        state = {"w": torch.zeros(4)}
        found = refusal(lambda: ckpt.restore(state, step=1 + rank))
        step_found = ckpt.restore(state, step=1)
    return [] if (found, step_found) == ("MismatchError", 1) else [f"{found}, then {step_found}"]


def a_value_becomes_each_ranks_own(rank: int, run: Path) -> list[str]:
    value = torch.zeros(4)
    with df.Checkpointer(run) as ckpt:
        saved(ckpt, 1, {"x": value})
        value += 10 + rank
        saved(ckpt, 2, {"x": df.per_rank(value)})
        live = df.per_rank(torch.zeros(4))
        ckpt.restore({"x": live})
    return [] if torch.equal(live.value, value) else [f"{live.value} for {value}"]


def replicas_differ(rank: int, run: Path) -> list[str]:
    with df.Checkpointer(run) as ckpt:
        found = refusal(lambda: ckpt.save(1, {"x": torch.full((4,), float(rank))}))
        saved(ckpt, 2, {"x": df.per_rank(torch.full((4,), float(rank)))})
    return [] if found == "MismatchError" else [found]


def a_replica_that_drifts_is_named(rank: int, run: Path) -> list[str]:
    weights = torch.zeros(100_000)
    found = []
    with df.Checkpointer(run, audit_saves=2) as ckpt:
        saved(ckpt, 1, {"w": weights})
        weights[99_999 * rank] += rank
        for step in (2, 3):
            handle = ckpt.save(step, {"w": weights})
            assert handle is not None
            handle.wait("durable")
            found += handle.status().diverged
    return [] if found == [("w", (0, 1))] else [f"found {found}"]


class Wrapper(nn.Module):
    """Has a DistributedDataParallel somewhere within."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
        self.inner = nn.parallel.DistributedDataParallel(model)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.inner(inputs)  # type: ignore[no-any-return]


def buffers_are_rank0s(rank: int, run: Path) -> list[str]:
    model = Wrapper()
    with df.Checkpointer(run) as ckpt:
        ckpt.prewarm({"m": model})
        torch.manual_seed(rank)
        model(torch.randn(8, 3))
        saved(ckpt, 1, {"m": model})
        mean = model.inner.module[1].running_mean
        own = mean.clone()
        ckpt.restore({"m": model})
    same = torch.equal(mean, own)
    return [] if same == (rank == 0) else [f"rank {rank} has its own back: {same}"]


def what_one_rank_can_not_store_is_told_to_both(rank: int, run: Path) -> list[str]:
    with df.Checkpointer(run) as ckpt:
        wrong: Any = {"x": 1, "f": object()} if rank else {"x": 1}
        found = refusal(lambda: ckpt.save(1, wrong))
        saved(ckpt, 2, {"x": 1})
    return [] if found == "EncodeError" else [found]


def a_clock_of_rank0_decides(rank: int, run: Path) -> list[str]:
    seconds = 1000.0 if rank else 1e-9
    with df.Checkpointer(run, every=df.every(seconds=seconds)) as ckpt:
        handle = ckpt.step(1, {"x": 1})
        if handle is not None:
            handle.wait("durable")
    return [] if handle is not None else ["rank 1 has gone by its own clock"]


def a_failure_that_one_rank_knows_first(rank: int, run: Path) -> list[str]:
    """It is raised in step(), between two questions that ranks ask of each other."""
    model = nn.Linear(400, 400)
    optimizer = torch.optim.SGD(model.parameters())
    state = {"model": model, "optim": optimizer}
    policy = df.every(seconds=1000)
    with df.Checkpointer(run, every=policy, strict_saves=True) as ckpt:
        ckpt.attach(optimizer, mode="after_update")
        if rank == 0:
            ckpt._completer._unraised = df.CheckpointError("an earlier save")
        found = refusal(lambda: ckpt.step(1, state))
        later = refusal(lambda: ckpt.step(2, state))
        saved(ckpt, 3, state)
    wanted = "nothing" if rank else "CheckpointError"
    return [] if (found, later) == (wanted, "nothing") else [f"{found}, then {later}"]


CASES = {
    case.__name__: case
    for case in (
        ranks_ask_for_different_steps,
        a_value_becomes_each_ranks_own,
        replicas_differ,
        a_replica_that_drifts_is_named,
        buffers_are_rank0s,
        what_one_rank_can_not_store_is_told_to_both,
        a_clock_of_rank0_decides,
        a_failure_that_one_rank_knows_first,
    )
}


def carry_out(name: str, rank: int, say: Say, run: Path) -> None:
    say(json.dumps(CASES[name](rank, run)))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("tests.ranks.cases", __doc__)
    parser.add_argument("name", choices=CASES)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    with scratch(options, "ranks-case") as place:
        run = Path(place) / "run"
        job = Job(2, lambda rank, _, say: carry_out(options.name, rank, say, run))
        ended = job.wait(WAIT_SECONDS)
    faults = [f"rank {i} failed: {e.report}" for i, e in enumerate(ended) if e.status != 0]
    faults += [fault for one in ended if one.status == 0 for fault in json.loads(one.report)]
    return conclude(options, f"{options.name}: {len(faults)} faults", {"faults": faults}, faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
