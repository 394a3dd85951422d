"""Asks lab.faults.child for one process per job, and ends it where it hangs."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab.faults.child import Job
from lab.faults.state import Judge, Loaded
from lab.measure.program import gist
from lab.writers.menu import ROOT

START_SECONDS_MAX = 300.0  # a cold import on a busy machine
JOB_SECONDS_MAX = 60.0
LOAD_SECONDS_MAX = 60.0
KILL_SECONDS_MAX = 30.0
READ_BYTES = 1 << 16
Event = dict[str, Any]


class NurseryError(Exception):
    """It can't be started, or does not do what was asked, with no fault near: nothing is learnt."""


class HungError(Exception):
    """Nothing happened for too long."""


class Nursery:
    """Owns one process that has imported a library, and at most one that it forked."""

    def __init__(self, python: Path, modules: tuple[str, ...], packages: tuple[str, ...]) -> None:
        self._asked = {"modules": modules, "packages": packages}
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None
        self._text = b""
        self._child: int | None = None
        self.versions: dict[str, str] = {}

    def open(self, seed: int) -> None:
        self._process = subprocess.Popen(
            [str(self._python), "-m", "lab.faults.child"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # Chainer writes in the order of a set
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._ask({**self._asked, "seed": seed})
        event = self._next(START_SECONDS_MAX)
        if event["event"] != "ready":
            raise NurseryError(gist(event.get("error", f"{self._python.name} ended")))
        self.versions = event["versions"]

    def start(self, job: Job) -> None:
        self._ask(asdict(job))
        event = self._next(JOB_SECONDS_MAX)
        if event["event"] != "born":
            raise NurseryError(f"no process was forked: {event}")
        self._child = event["process"]

    def next(self, seconds_max: float = JOB_SECONDS_MAX) -> Event:
        """The last one of a job is "ended"."""
        event = self._next(seconds_max)
        if event["event"] == "ended":
            self._kill_group()  # whatever it has left behind
            self._child = None
        return event

    def pending(self) -> list[Event]:
        """What has been said already."""
        found = []
        while self.said(0):
            found.append(self.next())
        return found

    def said(self, seconds: float) -> bool:
        """Whether there is something to read, within so many seconds."""
        return b"\n" in self._text or self._readable(seconds)

    def rest(self, seconds_max: float = JOB_SECONDS_MAX) -> Iterator[Event]:
        while self._child is not None:
            yield self.next(seconds_max)

    def kill(self) -> list[Event]:
        """SIGKILL for the job and all that it started; returns what it had said."""
        self._kill_group()
        return list(self.rest(KILL_SECONDS_MAX))

    def close(self) -> None:
        self._kill_group()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()

    def _kill_group(self) -> None:
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._child, signal.SIGKILL)

    def _ask(self, what: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the answer that does not come says more
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()

    def _next(self, seconds_max: float) -> Event:
        until = time.monotonic() + seconds_max
        while b"\n" not in self._text:
            if not self._readable(until - time.monotonic()):
                raise HungError(f"nothing for {seconds_max:g} s")
            read = os.read(self._output(), READ_BYTES)
            if not read:
                raise NurseryError("the process that forks has ended")
            self._text += read
        line, _, self._text = self._text.partition(b"\n")
        event: Event = json.loads(line)
        return event

    def _readable(self, seconds: float) -> bool:
        return bool(select.select([self._output()], [], [], max(0.0, seconds))[0])

    def _output(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()


def load(nursery: Nursery, job: Job, judge: Judge) -> Loaded:
    """One load in a process of its own."""
    nursery.start(job)
    answers: dict[str, Event] = {}
    try:
        for event in nursery.rest(LOAD_SECONDS_MAX):
            answers.setdefault(event["event"], event)
    except HungError as error:
        nursery.kill()
        return Loaded("hung", error=str(error))
    if "loaded" in answers:
        return judged(answers["loaded"], judge)
    if "failed" in answers:
        return Loaded("failed", error=gist(answers["failed"]["error"]))
    return Loaded("died", error=f"exit status {answers['ended']['status']}")


def judged(event: Event, judge: Judge) -> Loaded:
    holds = judge.holds(event["prints"])
    tally = judge.tally(event["prints"]) if holds == "wrong" else {}
    return Loaded("loaded", holds, passed_over=tuple(event["passed_over"]), tally=tally)
