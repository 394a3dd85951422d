"""Trains, kills, resumes and compares: the restarts of one framework, by one of its writers each.

It imports the framework once and uses nothing of it; every run is a process forked from that, so
each begins with fresh state.
"""

import importlib
import importlib.metadata
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lab.faults.parent import end_with_parent
from lab.measure.program import gist
from lab.programs.answer import carry_out
from lab.programs.restart_job import BIT_IDENTICAL, KILLED_IN_SAVE, NONDETERMINISTIC, Job
from lab.programs.restart_protocol import LAST, Voice
from lab.programs.restart_verdict import Found, Record, baseline, restart

SILENCE_SECONDS_MAX = 90.0  # of one process: compiling, on a busy machine
READ_BYTES = 1 << 16
SAVES_UNDISTURBED = 1  # of a run that is killed in a save: so that there is one to go back to
OTHER_SEED = 57  # added for a process that resumes: nothing must follow from its seed


class Restarts:
    """Of one framework, below one directory."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.module = importlib.import_module(f"lab.programs.restart_{request['framework']}")
        self.seed = int(request["seed"])
        self.place = Path(request["directory"])
        self.references: dict[str, tuple[Record, Found]] = {}

    def reference(self, variant: str) -> tuple[Record, Found]:
        """An undisturbed run, and whether a second one is the same."""
        if variant not in self.references:
            one, other = (self.process(self.job("", (), variant, str(n))) for n in range(2))
            self.references[variant] = one, baseline(one, other)
        return self.references[variant]

    def restart(self, number: int, asked: dict[str, Any]) -> Found:
        variant = asked["variant"]
        reference, repeats = self.reference(variant)
        if repeats.verdict != BIT_IDENTICAL:
            return Found(NONDETERMINISTIC, repeats.first_step, repeats.first_entry,
                         reason=repeats.reason)  # fmt: skip
        job = self.job(asked["writer"], asked["saved"], variant, f"run-{number}", asked["fault"])
        crashed = self.process(job, asked["delay_seconds"])
        resuming = replace(job, seed=self.seed + OTHER_SEED, resumes=True)
        return restart(reference, crashed, self.process(resuming))

    def job(
        self, writer: str, saved: list[str] | tuple[()], variant: str, name: str, fault: str = ""
    ) -> Job:
        place = self.place / f"{variant or 'usual'}-{name}"
        place.mkdir()
        return Job(writer, tuple(saved), variant, str(place), self.seed, fault=fault)

    def process(self, job: Job, delay_seconds: float = 0.0) -> Record:
        """Forked from this one; ends with it."""
        ours, theirs = os.pipe()
        process = os.fork()
        if process == 0:
            end_with_parent()
            os.close(ours)
            self.work(job, Voice(theirs))
            os._exit(0)
        os.close(theirs)
        try:
            return watched(process, ours, job, delay_seconds)
        finally:
            os.close(ours)
            os.waitpid(process, 0)

    def work(self, job: Job, voice: Voice) -> None:
        try:
            self.module.run(job, self.seed, voice)
        except BaseException as error:  # the writer's outcome, whatever it is
            voice.say("failed", error=f"{type(error).__name__}: {error}")


def watched(process: int, descriptor: int, job: Job, delay_seconds: float) -> Record:
    """Takes what a process tells, and ends it: with SIGKILL where it is its turn.

    `delay_seconds` after a save has begun: that may be before its end or after it.
    """
    record = Record()
    saves = 0
    try:
        for event in events(descriptor):
            take(event, record)
            saves += event["event"] == "saving"
            in_save = job.fault == KILLED_IN_SAVE and saves > SAVES_UNDISTURBED
            if in_save and not job.resumes:
                time.sleep(delay_seconds)
            if event["event"] == "holding" or (in_save and not job.resumes):
                record.killed = True
                break
    except TimeoutError as error:
        record.error = str(error)
    os.kill(process, signal.SIGKILL)  # one that has ended waits to be reaped: no other has its id
    if (job.place / LAST).exists():
        with np.load(job.place / LAST) as file:
            record.last = dict(file)
    return record


def take(event: dict[str, Any], record: Record) -> None:
    if event["event"] == "step":
        record.steps[event["step"]] = event["entries"]
    elif event["event"] == "restored":
        record.restored_step, record.restored = event["step"], event["entries"]
    elif event["event"] == "failed":
        record.error = gist(event["error"])


def events(descriptor: int) -> Iterator[dict[str, Any]]:
    text = b""
    while True:
        until = time.monotonic() + SILENCE_SECONDS_MAX
        if not select.select([descriptor], [], [], until - time.monotonic())[0]:
            raise TimeoutError(f"nothing for {SILENCE_SECONDS_MAX:g} s")
        read = os.read(descriptor, READ_BYTES)
        if not read:
            return
        *lines, text = (text + read).split(b"\n")
        yield from map(json.loads, lines)


def work(request: dict[str, Any]) -> dict[str, Any]:
    restarts = Restarts(request)
    found = [restarts.restart(*each).as_json() for each in enumerate(request["restarts"])]
    versions = {name: importlib.metadata.version(name) for name in restarts.module.PACKAGES}
    baselines = {name: one.as_json() for name, (_, one) in restarts.references.items()}
    return {"restarts": found, "baselines": baselines, "versions": versions}


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
