"""Snapshots under updates: the verdicts, two hand-made savers, and one real case."""

from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from deepfreeze import TornCaptureError
from lab.experiments import tearing
from lab.experiments.tearing import CONSISTENT, REFUSED, TORN, Group, Writer
from lab.measure import run as study_run
from lab.measure.case import Plan
from lab.measure.program import OWN, Environments
from lab.measure.row import check
from lab.networks.layout import equal_tensors
from lab.programs import tearing as program
from lab.programs.tearing import Constant, held, snapshot
from lab.writers.saver import ArraySaver, Pending
from lab.writers.values import Array

TIMEOUT_SECONDS = 30.0


class Careless(ArraySaver):
    """Takes the second half of its snapshot only after two updates."""

    taken: dict[str, Array]

    def open(self, directory: Path) -> None:
        self.updated, self.updates = Event(), 0
        self.failure: Exception | None = None

    def update(self) -> None:
        for array in self.arrays.values():
            array[...] = np.asarray(array, np.float32) + 1
        self.updates += 1
        if self.updates == 2:
            self.updated.set()

    def save(self, directory: Path, step: int) -> Pending:
        first, *others = self.arrays
        self.taken = {first: self.arrays[first].copy()}

        def finish() -> None:
            assert self.updated.wait(TIMEOUT_SECONDS)
            self.taken |= {name: self.arrays[name].copy() for name in others}
            if self.failure is not None:
                raise self.failure

        return Pending(committed=finish)

    def restore(self, directory: Path, step: int) -> None:
        for name, array in self.taken.items():
            self.arrays[name][...] = array


@pytest.fixture
def saver(tmp_path: Path) -> Careless:
    made = Careless(equal_tensors("t", "t", 3, 48), Constant())
    made.fill(1)
    made.open(tmp_path)
    return made


def told(saver: Careless, place: Path) -> dict[str, Any]:
    found = snapshot(saver, place, saver.update, waits=True)
    saver.fill(0)
    saver.restore(place, 1)
    return found | {"holds": held(saver)}


def test_a_snapshot_of_several_steps_is_torn(saver: Careless, tmp_path: Path) -> None:
    found = told(saver, tmp_path)
    assert found["holds"][0] == 1.0
    assert len(found["holds"]) > 1
    assert tearing.verdict(found) == TORN
    row = tearing.row({"attempts": [found, found | {"holds": [1.0]}]})
    assert (row["verdict"], row["trials"]) == (TORN, 2)
    assert row["steps_mixed"] == len(found["holds"])


def test_a_refusal_is_one_and_another_error_is_none(saver: Careless, tmp_path: Path) -> None:
    saver.failure = TornCaptureError("changed: layer0.weight")
    found = snapshot(saver, tmp_path, saver.update, waits=True)
    assert tearing.verdict(found) == REFUSED
    row = tearing.row({"attempts": [found]})
    assert "layer0.weight" in str(row["reason"])
    saver.updated.clear()
    saver.updates = 0
    saver.failure = OSError("no disk")
    with pytest.raises(OSError, match="no disk"):
        snapshot(saver, tmp_path, saver.update, waits=True)


def test_who_never_commits_is_a_timeout(
    saver: Careless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "COMMIT_SECONDS_MAX", 0.0)
    with pytest.raises(TimeoutError):
        snapshot(saver, tmp_path, lambda: None, waits=True)
    saver.updated.set()


def test_one_step_that_was_not_asked_for_is_torn() -> None:
    said = {"refused": "", "asked": 1}
    assert tearing.verdict({**said, "holds": [1.0]}) == CONSISTENT
    assert tearing.verdict({**said, "holds": [2.0]}) == TORN


def test_what_a_state_holds(saver: Careless) -> None:
    saver.arrays["layer1.weight"][2] = 7.0
    assert held(saver) == [1.0, 7.0]
    assert np.float32(1.0) in saver.arrays["layer1.weight"]


def test_a_live_thread_tears_and_deepfreeze_does_not(tmp_path: Path) -> None:
    writers = tuple(each for each in tearing.GROUPS[0].writers
                    if each.name in ("torch-save-thread", "df-attached"))  # fmt: skip
    wanted = Group("pytorch", OWN, (*writers, Writer("no-such", "df", "no_such")), 1.0, 1.0)
    plan = Plan(quick=True, seed=7)
    found = study_run.rows_of(tearing.case(wanted, quick=True), Environments(), tmp_path, plan)
    assert [check(row).get("verdict") for row in found] == [TORN, CONSISTENT, None]
    assert (found[2]["status"], found[2]["reason"]) == ("failed", "KeyError: 'no_such'")
