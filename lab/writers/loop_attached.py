"""DeepFreeze beside a training of another framework than torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deepfreeze as df
from lab.writers.loop import KEEP_LAST, DeepFreezeSaver


class Attached(DeepFreezeSaver):
    """What of the training has to be attached is. Fences are what DeepFreeze says of them.

    A training that it is used with names that in `attached`.
    """

    name = "df-default"
    title = "DeepFreeze, default"

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        super().__init__(training, directory, every)
        for each in training.attached:
            self.checkpointer.attach(each)

    def settle(self) -> None:
        super().settle()
        for record in self.records:
            record.fence_seconds = record.fence_reported_seconds or 0.0


class AttachedLatency(Attached):
    """The profile with the least stall."""

    name = "df-latency"
    title = "DeepFreeze, latency"

    def open(self) -> df.Checkpointer:
        return df.Checkpointer(self.directory, keep=df.keep(last=KEEP_LAST), profile="latency")


OURS = (Attached, AttachedLatency)
