"""`deepfreeze tiers --plan` counts with the requests that a flush really makes."""

from __future__ import annotations

import json

import pytest

from examples.demo.program import run_program

from .fault_proxy import FaultProxy
from .stored_run import KEPT, LARGE, SECONDS, StoredRun, state_at

SMALL = 1 << 16  # bytes: one PUT
COUNTED = 3  # checkpoints, in a tier that is full and deletes one for each


def planned(run: StoredRun) -> tuple[float, float]:
    """Requests for one checkpoint: with the price of a PUT, with that of a GET."""
    rules = ("--steps-per-hour", "10", "--keep-last", str(KEPT))
    ended = run_program("tiers", "--plan", str(run.near), *rules, "--json")
    month = json.loads(ended.stdout)["months"][-1]
    return month["puts"] / month["checkpoints"], month["gets"] / month["checkpoints"]


def counted(proxy: FaultProxy, before: int) -> tuple[float, float]:
    asked = ["LIST" if "list-type=2" in seen.query else seen.method for seen in proxy.seen[before:]]
    puts = sum(kind in ("PUT", "POST", "LIST") for kind in asked)
    return puts / COUNTED, sum(kind in ("GET", "HEAD") for kind in asked) / COUNTED


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_flush_makes_the_requests_of_the_plan(run: StoredRun, size: int) -> None:
    """Within a quarter: a flush looks once more, or once less, at a tier that has changed."""
    run.save(*range(1, KEPT + 2), size=size)
    with run.opened() as ckpt:
        ckpt.restore(state_at(0, size))
        before = len(run.proxy.seen)
        for step in range(KEPT + 2, KEPT + 2 + COUNTED):
            handle = ckpt.save(step, state_at(step, size))
            assert handle is not None
            handle.wait("durable", SECONDS)
    assert counted(run.proxy, before) == pytest.approx(planned(run), rel=0.25)
