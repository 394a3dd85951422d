"""At which moment of a save a fault comes: by the clock, or at a call that changes a file.

By the clock, a part of the save is met as often as it takes long, and what is met differs from
run to run. At a call, the same part is met again wherever a saver makes the same calls again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lab.faults.subject import Subject

Detail = dict[str, Any]


class Moments(Protocol):
    def reach(self, directory: Path, share: float, **options: Any) -> Detail | None:
        """Starts a save and returns where so much of it, of 1, is done; its process is not ended.

        None where it was all done before; by the clock, it may be so in any case.
        """


Measure = Callable[[Subject, Path], Moments]  # by undisturbed saves, in that directory


@dataclass(frozen=True)
class Clock:
    subject: Subject
    seconds: float  # of a save

    @classmethod
    def measure(cls, subject: Subject, directory: Path) -> Clock:
        return cls(subject, subject.save_seconds(directory))

    def reach(self, directory: Path, share: float, **options: Any) -> Detail | None:
        seconds = share * self.seconds
        self.subject.start_save(directory, held=True, **options)
        self.subject.wait_for("saving")
        time.sleep(seconds)
        return {"seconds": seconds}


@dataclass(frozen=True)
class Calls:
    subject: Subject
    count: int  # in a save, its end included

    @classmethod
    def measure(cls, subject: Subject, directory: Path) -> Calls:
        return cls(subject, subject.save_calls(directory))

    def reach(self, directory: Path, share: float, **options: Any) -> Detail | None:
        number = 1 + int(share * self.count)
        options |= {"held": True, "watched": True, "hold_at": number}
        self.subject.start_save(directory, **options)
        self.subject.wait_for("saving")
        call = self.subject.held_call()
        return None if call is None else {"call": number, "of": self.count, "before": call}
