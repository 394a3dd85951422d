"""One saver under test: saves in one process, loads in others."""

import shutil
import signal
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from lab.faults.child import Job
from lab.faults.nursery import Event, Nursery, NurseryError, load
from lab.faults.state import NEWER, Judge, Loaded
from lab.measure.program import gist
from lab.writers.menu import Entry

ERROR_CHARACTERS_MAX = 120
CONTROLS = 3  # undisturbed saves, whose median duration is a save's
DRAWS_MAX = 40  # of a moment, until it falls into a save


@dataclass(frozen=True)
class Trial:
    """One fault, and what became of the checkpoint."""

    outcome: str
    detail: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"outcome": self.outcome, **self.detail}


Trials = Generator[Trial, None, None]


@dataclass(frozen=True)
class Subject:
    """Its nursery holds at most one process of it."""

    entry: Entry
    nursery: Nursery
    judge: Judge
    random: Random
    place: Path  # for what is no disk of its own

    def start_save(self, directory: Path, what: str = "save", **options: Any) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        self.nursery.start(self._job(what, directory, **options))

    def wait_for(self, event: str) -> Event:
        """Of the newer checkpoint; with no fault before it, all else is an error."""
        while True:
            found = self.nursery.next()
            refuse_failure(found)
            if (found["event"], found.get("version")) == (event, NEWER):
                return found

    def is_done(self) -> bool:
        """Whether the save has said so up to now."""
        events = self.nursery.pending()
        for event in events:
            refuse_failure(event)
        return bool(events)

    def kill_before_done(self) -> bool:
        """Whether SIGKILL came before the save said that it is done, and was what ended it."""
        *events, ended = self.nursery.kill()
        for event in events:
            refuse_failure(event)
        if ended["status"] != -signal.SIGKILL:
            refuse_failure(ended)
        return not events

    def save(self, directory: Path, **options: Any) -> list[Event]:
        """Undisturbed, to the end of its process. What was said of the two checkpoints."""
        self.start_save(directory, **{"listed": True, **options})
        *events, ended = self.nursery.rest()
        for event in events:
            refuse_failure(event)
        saved = [event for event in events if event["event"] == "saved"]
        if len(saved) != 2 or ended["status"] != 0:
            refuse_failure(ended)
        return saved

    def save_seconds(self, directory: Path) -> float:
        """Of a newer checkpoint, by the controls; what they saved is loaded and judged."""
        seconds: list[float] = []
        for _ in range(CONTROLS):
            seconds.append(self.save(directory)[-1]["seconds"])
            self.check_undamaged(directory)
        return median(seconds)

    def save_calls(self, directory: Path) -> int:
        """With which one undisturbed save changes files, and its end. It is loaded and judged."""
        self.start_save(directory, watched=True)
        events = list(self.nursery.rest())
        for event in events:
            refuse_failure(event, status=0)
        (calls,) = (event["calls"] for event in events if event["event"] == "counted")
        if calls <= 1:
            raise NurseryError("no call by which the save changes a file was seen")
        self.check_undamaged(directory)
        return int(calls)

    def held_call(self) -> str | None:
        """After a "saving": waits for its call to be held. None where it was done before."""
        event = self.nursery.next()
        refuse_failure(event)
        return str(event["call"]) if event["event"] == "held" else None

    def check_undamaged(self, directory: Path) -> None:
        """A saver that fails without a fault is none to judge by faults."""
        loaded = self.load(directory)
        if loaded.holds != "newer":
            what = loaded.error or f"loads {loaded.holds}"
            raise NurseryError(f"without any fault: {loaded.end}: {what}")

    def load(self, directory: Path, what: str = "load") -> Loaded:
        return load(self.nursery, self._job(what, directory), self.judge)

    def load_all(self, directory: Path) -> tuple[Loaded, Loaded | None]:
        """What the saver takes for the newest; where that fails, the older one by its name."""
        first = self.load(directory)
        return first, None if first.end == "loaded" else self.load(directory, "load older")

    def _job(self, what: str, directory: Path, **options: Any) -> Job:
        one = self.entry
        return Job(what, one.module, one.kind, one.way, one.layers, str(directory), **options)


def refuse_failure(event: Event, status: int | None = None) -> None:
    """Unless the process ended with that status."""
    if event["event"] == "failed":
        raise NurseryError(f"save: {gist(event['error'])}")
    if event["event"] == "ended" and event["status"] != status:
        raise NurseryError(f"the process that saves ended with {event['status']}")


def described(first: Loaded, older: Loaded | None) -> dict[str, Any]:
    """For the JSON; what is empty is left out."""
    found: dict[str, Any] = {"end": first.end, "error": short(first.error), "tally": first.tally}
    found["passed_over"] = list(first.passed_over)
    if older is not None:
        found |= {"older_end": older.end, "older_error": short(older.error)}
        found["older_tally"] = older.tally
    return {name: value for name, value in found.items() if value}


def short(error: str) -> str:
    return error if len(error) <= ERROR_CHARACTERS_MAX else error[:ERROR_CHARACTERS_MAX] + "…"
