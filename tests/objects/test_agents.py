"""Agents that flush to a real store: two of them one attempt, and one that is a zombie by then."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import deepfreeze as df
from examples.demo.program import run_program
from tests.support import warm_python

from . import faults
from .fault_proxy import When, matching
from .stored_run import LARGE, SECONDS, StoredRun, state_at, values_of

SMALL = 1 << 16  # bytes: one PUT; LARGE: an upload in parts
DATA = matching("PUT", "*.safetensors")
COMPLETE = matching("POST", "*.safetensors", "uploadId=")
MANIFEST = matching("PUT", "*/manifest.json")

FLUSHES_NOTHING = "tier.append=error"  # so that no request that a test holds is a trainer's

# Goes on with a run, saves a step or none, and ends. Its agent then has to flush.
TRAINER = """
import sys
from tests.objects.stored_run import state_at
import deepfreeze as df
near, url, agent, step, size = sys.argv[1:]
with df.Checkpointer(near, agent=agent, tiers=[df.tier(url)]) as ckpt:
    ckpt.restore(state_at(0, int(size)))
    if step != "0":
        ckpt.save(int(step), state_at(int(step), int(size))).wait("local", 60)
"""


class Agent:
    """On a machine of its own: a near directory, and the agent of a trainer that is gone."""

    def __init__(self, run: StoredRun, name: str) -> None:
        self._run = run
        self.near = run.place / name
        self.directory = run.place / f"agent-{name}"

    def start(self) -> None:
        ended = run_program("agent", "--background", "--directory", str(self.directory))
        assert ended.returncode == 0, ended.stderr

    def train(self, step: int, size: int, fail: str = "") -> None:
        words = [str(self.near), self._run.url, str(self.directory), str(step), str(size)]
        command = [sys.executable, "-c", TRAINER, *words]
        environment = {**os.environ, "DEEPFREEZE_FAIL": fail}
        done = warm_python.run(command, env=environment, stdout=subprocess.PIPE, timeout=SECONDS)
        assert done.returncode == 0

    def told(self) -> dict[str, Any]:
        ended = run_program("agent", "--status", "--json", "--directory", str(self.directory))
        found: dict[str, Any] = json.loads(ended.stdout) if ended.returncode == 0 else {}
        return found

    def drain(self) -> str:
        """Until it has done everything; its messages."""
        run_program("agent", "--drain", "--deadline", "60", "--directory", str(self.directory))
        return (self.directory / "agent.log").read_text()

    def end(self) -> None:
        process = self.told().get("process")
        if process is not None:
            os.kill(process, signal.SIGKILL)


@contextmanager
def agents(run: StoredRun, *names: str) -> Iterator[list[Agent]]:
    made = [Agent(run, name) for name in names]
    try:
        for agent in made:
            agent.start()
        yield made
    finally:
        for agent in made:
            agent.end()


def wait_for(run: StoredRun, when: When, since: int, count: int) -> None:
    until = time.monotonic() + SECONDS
    while sum(map(when, run.proxy.seen[since:])) < count:
        assert time.monotonic() < until, "there were no such requests"
        time.sleep(0.01)


def save_near(run: StoredRun, near: Path, *steps: int, size: int) -> None:
    """Without a tier."""
    with df.Checkpointer(near) as ckpt:
        ckpt.restore(state_at(0, size))
        for step in steps:
            handle = ckpt.save(step, state_at(step, size))
            assert handle is not None
            handle.wait("durable", SECONDS)


@pytest.mark.parametrize(
    ("size", "when"),
    [(SMALL, DATA), (SMALL, MANIFEST), (LARGE, DATA), (LARGE, COMPLETE)],
    ids=["put", "manifest", "part", "complete"],
)
def test_two_agents_flush_one_attempt_at_once(run: StoredRun, size: int, when: When) -> None:
    """Both are held at the same request until both have come so far."""
    save_near(run, run.near, 1, size=size)
    for name in ("a", "b"):
        shutil.copytree(run.near, run.place / name)
    until = threading.Event()
    with agents(run, "a", "b") as both, run.proxy.doing(faults.silence(until), when, times=None):
        for agent in both:
            since = len(run.proxy.seen)
            agent.train(0, size, FLUSHES_NOTHING)
            wait_for(run, when, since, 1)
        until.set()
        logs = [agent.drain() for agent in both]
    assert run.objects() == run.files(), logs
    assert run.client.open_uploads(f"{run.prefix}/") == []
    assert run.restored(size=size) == (1, values_of(state_at(1, size)))
    verified = run_program("verify", run.url)
    assert verified.returncode == 0, verified.stdout


@pytest.mark.parametrize("when", [DATA, MANIFEST], ids=["data", "manifest"])
def test_a_zombie_agent_brings_nothing_back(run: StoredRun, when: When) -> None:
    """Its trainer's machine was given up: another one has gone on from the store, and deleted."""
    until = threading.Event()
    run.save(1, size=SMALL)
    with agents(run, "near") as (zombie,):
        with run.proxy.doing(faults.silence(until), when) as rule:
            zombie.train(2, SMALL, FLUSHES_NOTHING)
            assert rule.happened.wait(SECONDS)
            since = len(run.proxy.seen)
            state = state_at(0, SMALL)
            keep = df.keep(last=2)
            with df.Checkpointer(
                run.place / "other", keep=keep, tiers=[df.tier(run.url, keep=keep)]
            ) as ckpt:
                assert ckpt.restore(state) == 1
                for step in (2, 3, 4):
                    handle = ckpt.save(step, state_at(10 + step, SMALL))
                    assert handle is not None
                    handle.wait("durable", SECONDS)
            assert len(run.proxy.seen) > since
            until.set()
        log = zombie.drain()
    state = state_at(0, SMALL)
    with df.Checkpointer(run.place / "third", tiers=[df.tier(run.url)]) as ckpt:
        assert [info.step for info in ckpt.checkpoints()] == [4, 3], log
        assert ckpt.restore(state) == 4
    assert values_of(state) == values_of(state_at(14, SMALL))
