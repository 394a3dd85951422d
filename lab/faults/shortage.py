"""A disk that fills up in a save; then a load, and another save with room again."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.faults.disk import XFS, disk
from lab.faults.nursery import Event, HungError, NurseryError
from lab.faults.state import NEWER, left, of_acknowledged, of_interrupted
from lab.faults.subject import Subject, Trial, Trials, described, short
from lab.measure.program import gist

# What came of the save.
REFUSED, ACKNOWLEDGED, ENDED, HANGS = "refused", "acknowledged", "ended", "hangs"
SAVE_SECONDS_MAX = 10.0  # many times what one takes


def run(subject: Subject, count: int) -> Trials:
    with disk(XFS, subject.place / "disk") as one:
        for _ in range(count):
            yield trial(subject, one.place / "run")


def trial(subject: Subject, directory: Path) -> Trial:
    """Loads what was there while the disk was full; and what is there after one more save."""
    copied = subject.place / "copied"
    shutil.rmtree(copied, ignore_errors=True)
    subject.start_save(directory, "save crowded", copied=str(copied))
    events, hangs = all_events(subject)
    if not any(event["event"] == "saving" and event["version"] == NEWER for event in events):
        raise NurseryError(f"no disk was filled: {events[-2:]}")
    came, error = (HANGS, "") if hangs else what_came(events)
    if came in (ENDED, HANGS):
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(directory, copied, symlinks=True)
    first, older = subject.load_all(copied)
    judged = of_acknowledged if came == ACKNOWLEDGED else of_interrupted
    detail: dict[str, Any] = {"came": came, "refusal": short(error), "left": left(first, older)}
    detail["later"] = is_whole(events) and subject.load(directory).holds == "newer"
    detail["later_refusal"] = short(gist(events[-2].get("error", "")))
    return Trial(judged(first, older), detail | described(first, older))


def all_events(subject: Subject) -> tuple[list[Event], bool]:
    """To the process's end; whether that came by force, for it hung."""
    events: list[Event] = []
    try:
        for event in subject.nursery.rest(SAVE_SECONDS_MAX):
            events.append(event)
    except HungError:
        return events + subject.nursery.kill(), True
    except BaseException:  # what is left of it would answer for the next trial
        with suppress(HungError, NurseryError):
            subject.nursery.kill()
        raise
    return events, False


def what_came(events: list[Event]) -> tuple[str, str]:
    for event in events:
        if event["event"] == "refused":
            return REFUSED, gist(event["error"])
        if (event["event"], event.get("version")) == ("saved", NEWER):
            return ACKNOWLEDGED, ""
    return ENDED, f"exit status {events[-1]['status']}"


def is_whole(events: list[Event]) -> bool:
    """Whether the save with room again said that it is done, and nothing failed."""
    return bool(events[-2]["event"] == "saved" and events[-1]["status"] == 0)
