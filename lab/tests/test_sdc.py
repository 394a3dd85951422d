"""Flipped bits: the injector, the places in files, the verdicts, and one real case of each kind."""

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from lab.experiments import sdc
from lab.faults.bit_flips import CLASSES, ReplayError, Spot, digest, draw, flip, replay
from lab.measure import run as study_run
from lab.measure.case import Plan
from lab.measure.program import Environments, ask
from lab.measure.row import check
from lab.programs import sdc_files, sdc_state
from lab.programs.sdc_training import Training as Trained
from lab.programs.sdc_training import ended, network, trial

PLAN = Plan(quick=True, seed=7)
SIZES = {"a": 5, "b": 12}


def arrays() -> dict[str, Any]:
    return {"a": np.arange(5, dtype=np.float32), "b": np.ones((3, 4), np.float32)}


@pytest.mark.parametrize("bits", CLASSES)
def test_places_are_different_ones_of_the_class(bits: str) -> None:
    most = 17 * len(CLASSES[bits])
    spots = draw(Random("x"), SIZES, CLASSES[bits], most)
    assert len(set(spots)) == most
    assert {spot.bit for spot in spots} == set(CLASSES[bits])
    assert {(spot.tensor, spot.index) for spot in spots} == {
        (name, index) for name, size in SIZES.items() for index in range(size)
    }


def test_the_classes_are_all_bits_once() -> None:
    assert sorted(bit for bits in CLASSES.values() for bit in bits) == list(range(32))
    assert tuple(CLASSES) == sdc.BITS


def test_a_flip_changes_that_bit_and_no_other() -> None:
    state, whole = arrays(), arrays()
    log = flip(state, [Spot("b", 7, 31), Spot("a", 2, 30)])
    assert state["b"][1, 3] == -1.0
    state["b"][1, 3] = 1.0
    changed = state["a"].view(np.uint32) ^ whole["a"].view(np.uint32)
    assert list(changed) == [0, 0, 1 << 30, 0, 0]
    assert (state["b"] == whole["b"]).all()
    assert log[0] == {"tensor": "b", "index": 7, "bit": 31, "old": "1.0", "new": "-1.0"}
    assert log[1]["new"] == "0.0"  # of 2.0, whose exponent has no other bit


def test_a_log_is_replayed_where_it_fits_and_nowhere_else() -> None:
    first, again = arrays(), arrays()
    log = json.loads(json.dumps(flip(first, draw(Random("y"), SIZES, range(32), 9))))
    replay(again, log)
    assert all(first[name].tobytes() == again[name].tobytes() for name in first)
    other = arrays()
    other[log[-1]["tensor"]].reshape(-1)[log[-1]["index"]] += 1
    before = {name: array.tobytes() for name, array in other.items()}
    with pytest.raises(ReplayError, match=log[-1]["tensor"]):
        replay(other, log)
    assert before == {name: array.tobytes() for name, array in other.items()}
    assert digest(log) != digest(log[:-1])


@pytest.mark.parametrize("optimizer", [sdc_state.ADAM, sdc_state.MOMENTUM])
def test_the_state_is_that_of_the_training(optimizer: str) -> None:
    training = Trained(3, optimizer)
    training.train(1)
    for component in sdc_state.COMPONENTS:
        shapes = {name: one.shape for name, one in training.arrays(component).items()}
        assert shapes == sdc_state.shapes(component, optimizer)
    slots = len(sdc_state.moments(optimizer)) // len(sdc_state.parameters())
    assert slots == len(training.optimizer.state_dict()["state"][0]) - (optimizer == "adam")
    assert len(list(network().parameters())) == len(sdc_state.shapes(sdc_state.MODEL))


def test_a_resume_is_deterministic_and_a_crucial_bit_is_not_absorbed() -> None:
    training = Trained(3, sdc_state.MOMENTUM)
    training.train(sdc_state.CHECKPOINT_STEP)
    state = training.state()
    base = ended(training)
    training.load(state)
    assert ended(training) == base
    asked = {"component": sdc_state.MODEL, "bits": "exponent 30", "flips": 100}
    lost, again = (trial(training, state, asked, "z") for _ in range(2))
    assert lost == again
    assert lost["evaluated"] is None
    asked["bits"] = "mantissa 0-22"
    asked["flips"] = 1
    absorbed = trial(training, state, asked, "z")
    assert abs(absorbed["evaluated"] - base[1]) < 0.01 * base[1]
    assert len(absorbed["log"]) == 1


def test_where_numbers_stand_in_files() -> None:
    array = np.arange(6, dtype=np.float32)
    contents = {
        Path("x"): b"other", Path("y"): b"abc" + array.tobytes(), Path("z"): array.tobytes(),
    }  # fmt: skip
    assert list(sdc_files.places_of(array, contents)) == [
        sdc_files.Place(Path("y"), 3), sdc_files.Place(Path("z"), 0),
    ]  # fmt: skip
    assert not list(sdc_files.places_of(array + 1, contents))


def test_verdicts() -> None:
    assert sdc.verdict(1, 0.0, 2.0) == sdc.LOST
    assert sdc.verdict(0, 2.1, 2.0) == sdc.LOST
    assert sdc.verdict(0, 0.021, 2.0) == sdc.SHIFTED
    assert sdc.verdict(0, 0.019, 2.0) == sdc.ABSORBED


class ReadsOne(sdc_files.Specimen):
    """Of two files that hold the same numbers it loads one, and compares nothing."""

    def __init__(self, directory: Path, read: str) -> None:
        array = np.arange(6, dtype=np.float32)
        self.saved = {"w": array}
        self.contents = {directory / name: array.tobytes() for name in ("a", "b")}
        self.read = directory / read
        for file, data in self.contents.items():
            file.write_bytes(data)

    def load(self) -> str:
        same = self.read.exists() and self.read.read_bytes() == self.saved["w"].tobytes()
        return sdc_files.SAME if same else sdc_files.SILENT


def test_a_copy_that_is_not_read_is_no_place(tmp_path: Path) -> None:
    spot = Spot("w", 1, 30)
    read = ReadsOne(tmp_path, "b").trial(spot)
    assert (read["outcome"], read["offset"]) == ("silent", 7)
    unread = ReadsOne(tmp_path, "a")
    unread.contents.pop(tmp_path / "a")
    assert unread.trial(spot)["outcome"] == sdc_files.NO_PLACE
    assert (tmp_path / "b").read_bytes() == unread.saved["w"].tobytes(), "mended after the trial"


def test_what_is_compressed_is_left_out_with_a_reason() -> None:
    trials = {bits: [{"outcome": sdc.NO_PLACE}] for bits in ("sign 31", "exponent 30")}
    (row,) = sdc.file_rows({"trials": trials})
    assert row["status"] == "left out"
    assert sdc.COMPRESSED in str(row["reason"])
    trials["sign 31"].append({"outcome": "silent"})
    row, left = sdc.file_rows({"trials": trials})
    assert (row["verdict"], row["trials"], row["silent"]) == (sdc.SILENT, 1, 1)
    assert (left["bits"], left["status"]) == ("exponent 30", "left out")


def test_deepfreeze_tells_and_torch_save_does_not(tmp_path: Path) -> None:
    wanted = list(sdc.questions(PLAN, sdc.COMPONENTS, 1, 1))
    request = {"writers": [sdc.writer_of(name) for name in ("torch-save", "df")],
               "asked": wanted, "seed": 5, "directory": str(tmp_path)}  # fmt: skip
    answers = ask(Path(sys.executable), "lab.programs.sdc_files", request, tmp_path)
    rows = [list(sdc.file_rows(answer)) for answer in answers]
    assert [{row["verdict"] for row in each} for each in rows] == [{sdc.SILENT}, {sdc.TOLD}]
    assert all(row["trials"] == len(sdc.COMPONENTS) for each in rows for row in each)


def test_what_is_flipped_with_one_optimizer_only_is_told() -> None:
    told = {(one.about["component"], one.about["workload"]) for one in sdc.cases(PLAN)
            if one.name.startswith("left out")}  # fmt: skip
    tried = {(component, sdc.WORKLOADS[optimizer]) for component, optimizer in sdc.TRAININGS}
    every = {(component, name) for component in sdc.COMPONENTS for name in sdc.WORKLOADS.values()}
    assert told == every - tried
    assert told


def test_a_training_gives_a_row_for_each_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdc, "QUICK_TRIALS", 1)
    found = next(iter(sdc.cases(PLAN)))
    rows = study_run.rows_of(found, Environments(), tmp_path, PLAN)
    assert [check(row)["status"] for row in rows] == ["ok"] * len(sdc.BITS) * len(sdc.FLIPS)
    assert all(row["component"] == "model" for row in rows)
