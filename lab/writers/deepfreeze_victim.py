"""DeepFreeze as it is by default, keeping every checkpoint; over the state of any framework."""

from __future__ import annotations

from pathlib import Path

import deepfreeze as df
from lab.faults.state import OLDER
from lab.writers.deepfreeze_saver import DeepFreezeSaver
from lab.writers.victim import Victim


class DeepFreezeVictim(DeepFreezeSaver, Victim):
    def open(self, directory: Path) -> None:
        self.checkpointer = df.Checkpointer(directory, profile=self.profile)
        for each in self.attached():
            self.checkpointer.attach(each)

    def load_newest(self, directory: Path) -> list[int]:
        with df.Checkpointer(directory) as checkpointer:
            if checkpointer.restore({"state": self.state()}) is None:
                raise LookupError("nothing was ever committed")
            report = checkpointer.last_restore
        assert report is not None
        return [step for step, _ in report.fell_back_from]

    def load_older(self, directory: Path) -> None:
        self.restore(directory, OLDER)
