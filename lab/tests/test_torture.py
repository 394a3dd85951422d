"""The faults happen, and the judge sees what they do; DeepFreeze loses nothing to them."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy
import pytest
import torch

from lab.experiments.torture import __main__ as command
from lab.experiments.torture import campaign
from lab.experiments.torture.campaign import AFTER, CAPTURED, DURING, FLIP, KILL, QUICK, Result, Row
from lab.faults import damage, moments, nursery, shortage, state
from lab.faults.calls import DONE
from lab.faults.changes import BIT, KINDS, PAGE_BYTES, Change
from lab.faults.damage import Specimen
from lab.faults.disk import EXT4, Cut, Disk, MissingError
from lab.faults.moments import Calls, Clock
from lab.faults.nursery import Nursery, NurseryError
from lab.faults.state import NEWER, OLDER, Judge, Loaded, fingerprints, layout
from lab.faults.subject import Subject, Trial
from lab.report import torture_table as table
from lab.writers.menu import FOLDERS, WITH_AGENT, Entry
from lab.writers.menu import VICTIMS_BY_NAME as SAVERS
from lab.writers.saver import OnePath, Pending
from lab.writers.torch_savers import TorchSaveWhole
from lab.writers.values import Array, Values

ROOT = Path(__file__).resolve().parents[2]
SEED = 5
HERE = "lab.tests.test_torture"
VALUES = Values(SEED)
JUDGE = Judge(layout(), VALUES)
Figures = dict[str, Any]


class TorchSave(OnePath, TorchSaveWhole):
    """As the registry has it."""

    filename = "latest.pt"


class WrongBytes(TorchSave):
    """Loads one bit that was not saved."""

    def load_newest(self, directory: Path) -> list[int]:
        super().load_newest(directory)
        self.tensors["layer3.weight"].view(torch.int32)[7, 7] ^= 1
        return []


class LoadsNothing(TorchSave):
    def load_newest(self, directory: Path) -> list[int]:
        return []


class RollsBack(TorchSave):
    """Gives the state before."""

    passed_over: tuple[int, ...] = ()

    def load_newest(self, directory: Path) -> list[int]:
        self.fill(OLDER)
        return list(self.passed_over)


class FallsBack(RollsBack):
    """And says why."""

    passed_over = (NEWER,)


class Raises(TorchSave):
    def load_newest(self, directory: Path) -> list[int]:
        raise ValueError("checksum of layer3.weight")


class KeepsOlder(Raises):
    """Under a name of its own."""

    def load_older(self, directory: Path) -> None:
        self.fill(OLDER)


class Crashes(TorchSave):
    def load_newest(self, directory: Path) -> list[int]:
        os.kill(os.getpid(), signal.SIGSEGV)
        return []


class Hangs(TorchSave):
    def load_newest(self, directory: Path) -> list[int]:
        signal.pause()
        return []


class Tears(TorchSave):
    """Has emptied its file when the newer save begins, and never ends that one."""

    def open(self, directory: Path) -> None:
        self.path = self.place(directory, NEWER)

    def fill(self, version: int) -> None:
        super().fill(version)
        if version == NEWER:
            self.path.write_bytes(b"")

    def save(self, directory: Path, step: int) -> Pending:
        if step == NEWER:
            signal.pause()
        return super().save(directory, step)


class FailsToSave(TorchSave):
    def save(self, directory: Path, step: int) -> Pending:
        raise OSError("no such luck")


class SavesNothing(TorchSave):
    def save(self, directory: Path, step: int) -> Pending:
        return Pending()


class SaysDone(TorchSave):
    """Whatever happened."""

    def save(self, directory: Path, step: int) -> Pending:
        with suppress(RuntimeError):
            super().save(directory, step)
        return Pending()


class Dies(TorchSave):
    """Where it can't save."""

    def save(self, directory: Path, step: int) -> Pending:
        try:
            return super().save(directory, step)
        except RuntimeError:
            os.kill(os.getpid(), signal.SIGSEGV)
            raise


class DiesInTheSave(TorchSave):
    """Of the newer state."""

    def save(self, directory: Path, step: int) -> Pending:
        if step == NEWER:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().save(directory, step)


class HangsAtOnce(TorchSave):
    """Before its first save."""

    def open(self, directory: Path) -> None:
        signal.pause()


class Waits(TorchSave):
    """For ever, where it can't save."""

    def save(self, directory: Path, step: int) -> Pending:
        try:
            return super().save(directory, step)
        except RuntimeError:
            signal.pause()
            raise


def entry(kind: type[TorchSave]) -> Entry:
    name = kind.__name__
    return dataclasses.replace(SAVERS["torch-save"], name=name, title=name, module=HERE, kind=name)


@pytest.fixture(scope="module")
def shared_nursery() -> Iterator[Nursery]:
    made = Nursery(Path(sys.executable), (HERE,), ("torch",))
    try:
        made.open(SEED)
        yield made
    finally:
        made.close()


def subject_of(kind: type[TorchSave], one: Nursery, place: Path) -> Subject:
    return Subject(entry(kind), one, JUDGE, Random(SEED), place)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Figures, str, str, Path]:
    place = tmp_path_factory.mktemp("torture")
    words = [sys.executable, "-m", "lab.experiments.torture", "--quick", "--seed", str(SEED)]
    words += ["--savers", "df", "df-agent", "torch-save", "torch-save-fsync"]
    words += ["--directory", str(place)]
    words += ["--json", str(place / "torture.json"), "--out", str(place / "torture.md")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((place / "torture.json").read_text())
    return figures, done.stdout, (place / "torture.md").read_text(), place


def outcomes_of(figures: Figures, saver: str, fault: str) -> Counter[str]:
    (row,) = (one for one in figures["rows"] if one["saver"] == saver)
    assert row["unavailable"] == ""
    found: Counter[str] = Counter()
    for result in row["results"]:
        if result["fault"].split()[0] == fault:
            assert result["error"] == ""
            found.update(trial["outcome"] for trial in result["trials"])
    return found


def test_deepfreeze_has_nothing_silent_and_nothing_lost(
    smoke: tuple[Figures, str, str, Path],
) -> None:
    figures = smoke[0]
    found = outcomes_of(figures, "df", FLIP)
    assert set(found) <= {state.FELL_BACK, state.HARMLESS}
    assert found.total() == QUICK.flips
    assert found[state.FELL_BACK] > QUICK.flips / 2
    killed = outcomes_of(figures, "df", KILL)
    assert set(killed) <= {state.OF_NEWER, state.OF_OLDER}
    assert killed.total() == QUICK.kills
    cuts = 2 * QUICK.cuts * (len(campaign.FILE_SYSTEMS) - len(figures["left_out"]))
    assert outcomes_of(figures, "df", AFTER) == Counter({state.KEPT: cuts} if cuts else {})
    during = outcomes_of(figures, "df", DURING)
    assert set(during) <= {state.OF_NEWER, state.OF_OLDER}
    assert during.total() == cuts


def test_a_captured_save_outlives_its_process_with_an_agent(
    smoke: tuple[Figures, str, str, Path],
) -> None:
    figures = smoke[0]
    assert outcomes_of(figures, "df-agent", CAPTURED) == {state.KEPT: QUICK.kills}
    # A saver that waits has nothing to lose, and without an agent nobody goes on with the save.
    assert outcomes_of(figures, "torch-save", CAPTURED) == {state.KEPT: QUICK.kills}
    assert set(outcomes_of(figures, "df", CAPTURED)) <= {state.KEPT, state.LOST}
    (row,) = (one for one in figures["rows"] if one["saver"] == "df-agent")
    assert [result["fault"] for result in row["results"]] == [FLIP, KILL, CAPTURED]


def test_what_never_syncs_is_lost_and_what_syncs_is_not(
    smoke: tuple[Figures, str, str, Path],
) -> None:
    """The second is the control: a cut takes nothing that was synced."""
    figures = smoke[0]
    if set(figures["left_out"]) == {one.name for one in campaign.FILE_SYSTEMS}:
        pytest.skip(f"LEFT OUT: {figures['left_out']}")
    assert outcomes_of(figures, "torch-save", AFTER)[state.LOST] > 0
    assert set(outcomes_of(figures, "torch-save-fsync", AFTER)) == {state.KEPT}
    (row,) = (one for one in figures["rows"] if one["saver"] == "torch-save")
    trials = [one for result in row["results"] for one in result["trials"] if "cut" in one]
    # With the journal lost nothing of the newer one is there, and the older one was synced.
    assert "older" in {one["left"] for one in trials if one["cut"] == Cut.LOG_LOST.name}


def test_a_saver_without_checksums_shows_that_bits_are_flipped(
    smoke: tuple[Figures, str, str, Path],
) -> None:
    figures = smoke[0]
    assert outcomes_of(figures, "torch-save", FLIP)[state.SILENT] > 0
    (row,) = (one for one in figures["rows"] if one["saver"] == "torch-save")
    for trial in row["results"][0]["trials"]:
        assert trial["file"] == TorchSave.filename
        if trial["outcome"] == state.SILENT:  # one tensor is neither version, all others right
            count = len(layout().tensors)
            assert trial["tally"] == {"newer": count - 1, "older": 0, "neither": 1}


def test_smoke_leaves_nothing_behind_and_names_no_place(
    smoke: tuple[Figures, str, str, Path],
) -> None:
    figures, output, markdown, place = smoke
    assert sorted(path.name for path in place.iterdir()) == ["torture.json", "torture.md"]
    backing = Path("/sys/block").glob("loop*/loop/backing_file")
    assert not [path for path in backing if "memfd:torture" in path.read_text()]
    for text in (output, markdown, json.dumps(figures)):
        assert f"--seed {SEED}" in text
        assert str(place) not in text
    assert table.markdown(figures) == markdown
    for name in figures["left_out"]:
        assert f"LEFT OUT: power cuts on {name}" in output
        assert f"LEFT OUT: power cuts on {name}" in markdown


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (TorchSave, state.HARMLESS),
        (WrongBytes, state.SILENT),
        (LoadsNothing, state.SILENT),
        (RollsBack, state.SILENT),
        (FallsBack, state.FELL_BACK),
        (Raises, state.DETECTED),
        (Crashes, state.DIED),
    ],
)
def test_every_end_of_a_load_is_told_from_the_others(
    kind: type[TorchSave], outcome: str, shared_nursery: Nursery, tmp_path: Path
) -> None:
    one = subject_of(kind, shared_nursery, tmp_path)
    one.save(tmp_path / "run")
    assert state.of_damage(one.load(tmp_path / "run")) == outcome


def test_a_state_of_fewer_layers_is_judged_as_such(shared_nursery: Nursery, tmp_path: Path) -> None:
    few = dataclasses.replace(entry(TorchSave), layers=1)
    for judge, holds in ((Judge(layout(1), VALUES), "newer"), (JUDGE, "wrong")):
        one = Subject(few, shared_nursery, judge, Random(SEED), tmp_path)
        one.save(tmp_path / "run")
        assert one.load(tmp_path / "run").holds == holds


def test_a_load_that_hangs_is_ended(
    shared_nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = subject_of(Hangs, shared_nursery, tmp_path)
    one.save(tmp_path / "run")
    monkeypatch.setattr(nursery, "LOAD_SECONDS_MAX", 0.2)
    assert state.of_damage(one.load(tmp_path / "run")) == state.HUNG
    monkeypatch.undo()
    good = subject_of(TorchSave, shared_nursery, tmp_path)
    assert good.load(tmp_path / "run").holds == "newer"


@pytest.mark.parametrize("kind", [WrongBytes, LoadsNothing, RollsBack, FailsToSave, Crashes])
def test_a_saver_that_fails_without_a_fault_is_not_judged(
    kind: type[TorchSave], shared_nursery: Nursery, tmp_path: Path
) -> None:
    one = subject_of(kind, shared_nursery, tmp_path)
    for trials in (damage.run(one, BIT, 1), moments.run(one, 1)):
        with pytest.raises(NurseryError, match=r"no such luck|without any fault"):
            next(trials)


def test_a_kill_is_one_and_shows_what_it_leaves(
    shared_nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(Subject, "save_seconds", lambda *_: 1000)
    one = subject_of(Tears, shared_nursery, tmp_path)
    (trial,) = moments.run(one, 1)
    assert trial.outcome == state.LOST
    assert (trial.detail["left"], trial.detail["draws"]) == ("nothing", 1)
    assert slept == [trial.detail["seconds"]]
    assert 1 < slept[0] < 1000


def test_an_older_checkpoint_is_asked_for_by_its_name(
    shared_nursery: Nursery, tmp_path: Path
) -> None:
    for kind, outcome in ((KeepsOlder, state.BY_HAND), (Raises, state.LOST)):
        one = subject_of(kind, shared_nursery, tmp_path)
        one.save(tmp_path / "run")
        assert state.of_interrupted(*one.load_all(tmp_path / "run")) == outcome


def test_a_save_that_is_done_before_its_kill_is_no_trial(
    shared_nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def until_done(self: Nursery) -> list[nursery.Event]:
        return [self.next(), *real_kill(self)]

    real_kill = Nursery.kill
    monkeypatch.setattr(moments, "DRAWS_MAX", 2)
    one = subject_of(TorchSave, shared_nursery, tmp_path)
    with pytest.raises(NurseryError, match="2 saves were done before their kill"):
        moments.one(one, tmp_path / "run", Calls(one, 10**9), 0.9)
    monkeypatch.setattr(Nursery, "kill", until_done)
    with pytest.raises(NurseryError, match="2 saves were done before their kill"):
        moments.one(one, tmp_path / "run", Clock(one, 0), 0)


class NoDisk(Disk):
    """A directory; counts the cuts."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.cuts: list[Cut] = []

    def cut_power(self, cut: Cut) -> None:
        self.cuts.append(cut)

    def unmount(self) -> None:
        """It is not mounted."""

    mount = unmount


def test_a_save_that_is_done_before_its_cut_is_no_trial(
    shared_nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, disk = subject_of(TorchSave, shared_nursery, tmp_path), NoDisk(tmp_path)
    monkeypatch.setattr(moments, "DRAWS_MAX", 2)
    monkeypatch.setattr(time, "sleep", lambda _: until_said(one.nursery))
    for each in (Clock(one, 0), Calls(one, 10**9)):
        with pytest.raises(NurseryError, match="2 saves were done before their cut"):
            moments.during(one, disk, Cut.LOG_LOST, each, 0.9)
    assert disk.cuts == []
    trial = moments.after(one, disk, Cut.LOG_LOST)
    assert (trial.outcome, disk.cuts) == (state.KEPT, [Cut.LOG_LOST])


def until_said(one: Nursery) -> None:
    """Without reading it."""
    assert one.said(30)


def test_each_trial_has_its_own_share_of_the_save(
    shared_nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []
    monkeypatch.setattr(Subject, "save_seconds", lambda *_: 8.0)
    monkeypatch.setattr(moments, "one", lambda *words: shares.append(words[-1]))
    list(moments.run(subject_of(TorchSave, shared_nursery, tmp_path), 4))
    assert [int(share * 4) for share in shares] == [0, 1, 2, 3]


def test_a_kill_at_a_call_meets_the_same_again(shared_nursery: Nursery, tmp_path: Path) -> None:
    def killed() -> list[Trial]:
        return list(moments.run(subject_of(TorchSave, shared_nursery, tmp_path), 4, Calls.measure))

    trials = killed()
    assert [trial.as_json() for trial in killed()] == [trial.as_json() for trial in trials]
    count = trials[0].detail["of"]
    for index, trial in enumerate(trials):
        assert index * count / 4 < trial.detail["call"] <= (index + 1) * count / 4 + 1
    assert [trial.detail["before"] for trial in trials] == ["writev latest.pt"] * 3 + [DONE]
    assert [trial.outcome for trial in trials] == [state.LOST] * 3 + [state.OF_NEWER]


def test_from_its_first_call_to_its_end_a_save_is_interrupted(
    shared_nursery: Nursery, tmp_path: Path
) -> None:
    one, disk = subject_of(TorchSave, shared_nursery, tmp_path), NoDisk(tmp_path)
    calls = Calls.measure(one, tmp_path / "run")
    for share, outcome, before in (
        (0, state.OF_OLDER, "openat latest.pt"),
        (0.999, state.OF_NEWER, DONE),
    ):
        killed = moments.one(one, tmp_path / "run", calls, share)
        cut = moments.during(one, disk, Cut.LOG_LOST, calls, share)
        for trial in (killed, cut):
            assert (trial.outcome, trial.detail["before"]) == (outcome, before)
            assert trial.detail["call"] == 1 + int(share * calls.count)
    assert disk.cuts == [Cut.LOG_LOST] * 2


def test_each_kind_of_cut_meets_each_part_of_the_save(
    shared_nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments, "disk", lambda *_: nullcontext(NoDisk(tmp_path)))
    one = subject_of(TorchSave, shared_nursery, tmp_path)
    met: dict[str, list[int]] = {cut.name: [] for cut in Cut}
    for trial in moments.run_during(one, EXT4, 2, Calls.measure):
        met[trial.detail["cut"]].append(2 * (trial.detail["call"] - 1) // trial.detail["of"])
        assert "before" in trial.detail
    assert met == {cut.name: [0, 1] for cut in Cut}


def test_a_saver_that_dies_in_the_save_is_not_judged(
    shared_nursery: Nursery, tmp_path: Path
) -> None:
    one = subject_of(DiesInTheSave, shared_nursery, tmp_path)
    for each in (Calls(one, 40), Clock(one, 1.0)):
        with pytest.raises(NurseryError, match="the process that saves ended with -11"):
            moments.one(one, tmp_path / "run", each, 0.9)
        with pytest.raises(NurseryError, match="the process that saves ended with -11"):
            moments.during(one, NoDisk(tmp_path), Cut.LOG_LOST, each, 0.9)


@pytest.mark.parametrize("kind", [WrongBytes, FailsToSave])
def test_a_saver_whose_calls_can_not_be_counted_is_not_judged(
    kind: type[TorchSave], shared_nursery: Nursery, tmp_path: Path
) -> None:
    one = subject_of(kind, shared_nursery, tmp_path)
    with pytest.raises(NurseryError, match=r"no such luck|without any fault"):
        Calls.measure(one, tmp_path / "run")


def test_a_save_that_changes_no_file_is_not_judged(shared_nursery: Nursery, tmp_path: Path) -> None:
    one = subject_of(SavesNothing, shared_nursery, tmp_path)
    with pytest.raises(NurseryError, match="no call by which the save changes a file was seen"):
        one.save_calls(tmp_path / "run")


def specimen_of(files: dict[str, bytes], older: dict[str, bytes]) -> Specimen:
    return Specimen(Any, files, older, Path(), Path())  # type: ignore[arg-type]


def test_damage_comes_anywhere_in_what_the_newer_save_wrote() -> None:
    written = damage.written_by_newer({"older": "a", "large": "b"}, dict.fromkeys(SIZES, "a"))
    assert written == ["large", "small"]
    one = specimen_of({name: bytes(SIZES[name]) for name in written}, {})
    random = Random(SEED)
    drawn = [one.draw(KINDS[BIT], random) for _ in range(2000)]
    assert 1400 < Counter(each.file for each in drawn)["large"] < 1800
    assert {each.change.about["bit"] for each in drawn} == set(range(8))
    offsets = [each.change.about["offset"] for each in drawn if each.file == "large"]
    assert min(offsets) < 40
    assert max(offsets) >= 3960
    for each in drawn[:50]:
        changed = each.change.apply(bytes(4000))
        assert sum(value.bit_count() for value in changed) == 1


SIZES = {"large": 4000, "small": 1000, "older": 4000}
PAGES = tuple(bytes([index]) * PAGE_BYTES for index in range(1, 5))


def test_every_kind_of_damage_does_what_it_says() -> None:
    whole, older = b"".join(PAGES) + b"end", b"".join(PAGES[:2]) + bytes([9]) * PAGE_BYTES
    one = specimen_of({"file": whole}, {"file": older})
    for seed in range(20):
        found = {
            kind: one.draw(draw, Random(seed)).change.apply(whole) for kind, draw in KINDS.items()
        }
        assert all(changed != whole for changed in found.values())
        assert sum(map(int.__ne__, found["one byte changed"], whole)) == 1
        zeroed = found["a page of 4 KiB zeroed"]
        assert zeroed in {
            Change(((at, bytes(len(whole[at : at + PAGE_BYTES]))),)).apply(whole)
            for at in range(0, len(whole), PAGE_BYTES)
        }
        assert found["cut off at 99 %"] == whole[: len(whole) * 99 // 100]
        assert whole.startswith(found["cut off anywhere"])
        swapped = found["two pages of 4 KiB swapped"]
        assert sorted(pages_of(swapped)) == sorted(PAGES)
        assert swapped.endswith(b"end")
        stale = found["a stale page of 4 KiB"]
        assert pages_of(stale) == [*PAGES[:2], older[2 * PAGE_BYTES :], PAGES[3]], "of its place"


def pages_of(whole: bytes) -> list[bytes]:
    return [whole[at : at + PAGE_BYTES] for at in range(0, 4 * PAGE_BYTES, PAGE_BYTES)]


def test_damage_that_would_change_nothing_is_not_done() -> None:
    one = specimen_of({"file": bytes(3 * PAGE_BYTES)}, {"file": bytes(3 * PAGE_BYTES)})
    for kind in ("a page of 4 KiB zeroed", "two pages of 4 KiB swapped", "a stale page of 4 KiB"):
        with pytest.raises(damage.NoPlaceError):
            one.draw(KINDS[kind], Random(SEED))


def plant(files: dict[Path, dict[str, int]]) -> None:
    """Below each place, of so many bytes."""
    for place, sizes in files.items():
        for name, size in sizes.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(bytes(size))


def test_an_older_version_is_of_the_same_name_but_for_the_step_or_the_largest(
    tmp_path: Path,
) -> None:
    older, newer = tmp_path / "older", tmp_path / "newer"
    files = {
        older: {"step-1-0123456789abcdef/a": 1, "step-1-0123456789abcdef/b": 2, "latest": 3},
        newer: {"step-2-fedcba9876543210/b": 2, "latest": 3, "other": 4},
    }
    plant(files)
    assert damage.older_versions(older, newer, list(files[newer])) == {
        "step-2-fedcba9876543210/b": older / "step-1-0123456789abcdef/b",
        "latest": older / "latest",
        "other": older / "latest",
    }


def test_of_several_older_versions_the_largest_goes_with_the_largest(tmp_path: Path) -> None:
    """Those of random names; how many there are may differ, too."""
    older, newer = tmp_path / "older", tmp_path / "newer"
    files = {
        older: {"d/00112233445566778": 9, "d/10112233445566778": 1, "d/20112233445566778": 5},
        newer: {"d/30112233445566778": 2, "d/40112233445566778": 8},
    }
    plant(files)
    assert damage.older_versions(older, newer, list(files[newer])) == {
        "d/40112233445566778": older / "d/00112233445566778",
        "d/30112233445566778": older / "d/20112233445566778",
    }


def test_damage_that_changed_nothing_is_an_error(
    shared_nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "write_bytes", lambda *_: 0)
    with pytest.raises(OSError, match=r"latest\.pt has not changed"):
        next(damage.run(subject_of(TorchSave, shared_nursery, tmp_path), BIT, 1))


@pytest.mark.parametrize(
    ("kind", "came", "outcome", "later"),
    [
        ("df", shortage.REFUSED, state.OF_OLDER, True),
        ("torch-save", shortage.REFUSED, state.LOST, True),
        ("torch-save-steps", shortage.REFUSED, state.BY_HAND, True),
        ("dcp", shortage.REFUSED, state.LOST, True),
        ("SaysDone", shortage.ACKNOWLEDGED, state.LOST, True),
        ("Dies", shortage.ENDED, state.LOST, False),
        ("Waits", shortage.HANGS, state.LOST, False),
    ],
)
def test_a_disk_that_fills_in_the_save(
    kind: str, came: str, outcome: str, later: bool, shared_nursery: Nursery, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(shortage, "SAVE_SECONDS_MAX", 3.0)
    known = SAVERS.get(kind) or dataclasses.replace(entry(TorchSave), kind=kind)
    subject = Subject(known, shared_nursery, JUDGE, Random(SEED), tmp_path)
    try:
        (trial,) = shortage.run(subject, 1)
    except MissingError as error:
        pytest.skip(f"LEFT OUT: {error}")
    assert (trial.detail["came"], trial.outcome, trial.detail["later"]) == (came, outcome, later)


def test_a_process_that_hangs_before_the_disk_is_full_is_no_trial(
    shared_nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortage, "SAVE_SECONDS_MAX", 0.2)
    with pytest.raises(NurseryError, match="no disk was filled"):
        shortage.trial(subject_of(HangsAtOnce, shared_nursery, tmp_path), tmp_path / "run")


def test_whatever_ends_a_trial_leaves_no_process(
    shared_nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Iterator[nursery.Event]:
        raise KeyboardInterrupt

    def first_interrupted(self: Nursery, seconds: float) -> Iterator[nursery.Event]:
        return next(both)(self, seconds)

    both = iter((interrupted, Nursery.rest))
    monkeypatch.setattr(Nursery, "rest", first_interrupted)
    with pytest.raises(KeyboardInterrupt):
        shortage.trial(subject_of(HangsAtOnce, shared_nursery, tmp_path), tmp_path / "run")
    monkeypatch.undo()
    assert list(shared_nursery.rest(0.2)) == [], "else it hangs"


def test_the_judge_knows_every_byte() -> None:
    newer, older = arrays_of(NEWER), arrays_of(OLDER)
    assert JUDGE.holds(fingerprints(newer)) == "newer"
    assert JUDGE.holds(fingerprints(older)) == "older"
    mixed = {**newer, "layer2.bias": older["layer2.bias"]}
    assert JUDGE.holds(fingerprints(mixed)) == "wrong"
    assert JUDGE.tally(fingerprints(mixed)) == {"newer": 95, "older": 1, "neither": 0}
    assert JUDGE.holds(fingerprints({**newer, "more": newer["layer0.step"]})) == "wrong"
    for name in newer:
        assert JUDGE.holds(fingerprints({**newer, name: changed(newer[name])})) == "wrong"
        fewer = {other: array for other, array in newer.items() if other != name}
        assert JUDGE.holds(fingerprints(fewer)) == "wrong"
    other_type = {**newer, "layer0.bias": newer["layer0.bias"].view(numpy.int32)}
    assert JUDGE.holds(fingerprints(other_type)) == "wrong"


def arrays_of(version: int) -> dict[str, Array]:
    arrays = {spec.name: numpy.empty(spec.shape, spec.dtype) for spec in layout().tensors}
    for index, array in enumerate(arrays.values()):
        VALUES.fill(array, index, version)
    return arrays


def changed(array: Array) -> Array:
    """In its last bit."""
    found = array.copy()
    found.reshape(-1).view(numpy.uint8)[-1] ^= 1
    return found


NEWEST, BEFORE, OTHER = (Loaded("loaded", one) for one in ("newer", "older", "wrong"))
FAILED, GONE = Loaded("failed", error="x"), Loaded("died")


@pytest.mark.parametrize(
    ("first", "older", "acknowledged", "interrupted", "left"),
    [
        (NEWEST, None, state.KEPT, state.OF_NEWER, "newer"),
        (BEFORE, None, state.LOST, state.OF_OLDER, "older"),
        (OTHER, None, state.WRONG, state.WRONG, "wrong"),
        (FAILED, BEFORE, state.LOST, state.BY_HAND, "older"),
        (FAILED, FAILED, state.LOST, state.LOST, "nothing"),
        (FAILED, OTHER, state.WRONG, state.WRONG, "wrong"),
        (GONE, GONE, state.LOST, state.LOST, "nothing"),
    ],
)
def test_what_a_load_after_a_power_cut_amounts_to(
    first: Loaded, older: Loaded | None, acknowledged: str, interrupted: str, left: str
) -> None:
    assert state.of_acknowledged(first, older) == acknowledged
    assert state.of_interrupted(first, older) == interrupted
    assert state.left(first, older) == left


def test_where_power_cannot_be_cut_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused() -> None:
        raise MissingError("unshare: Operation not permitted")

    monkeypatch.setattr(campaign, "keep_mounts_to_ourselves", refused)
    words = ["--savers", "torch-save", "--faults", AFTER, "--directory", str(tmp_path)]
    assert command.main([*words, "--json", str(tmp_path / "json")]) == 0
    output = capsys.readouterr().out
    assert output.count("LEFT OUT: power cuts on xfs: unshare: Operation not permitted") == 2
    assert "| torch.save | left out | left out |" in output
    figures = json.loads((tmp_path / "json").read_text())
    assert set(figures["left_out"]) == {"ext4", "xfs"}
    monkeypatch.setattr(command.Report, "ours_failed", lambda _: True)
    assert command.main([*words, "--seed", str(SEED)]) == 1


def test_what_is_not_there_has_a_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FOLDERS, "missing", "no-such-venv")
    absent = dataclasses.replace(SAVERS["df"], name="absent", environment="missing")
    broken = dataclasses.replace(SAVERS["df"], name="broken", imports=("no_such_library",))
    faults = campaign.faults_of([FLIP])
    one = campaign.Campaign((absent, broken), faults, QUICK, SEED, {}, tmp_path, lambda _: None)
    first, second = one.run()
    assert first.unavailable.startswith("not installed")
    assert second.unavailable == "ModuleNotFoundError: No module named 'no_such_library'"
    cells = table.cells(first.as_json(), [FLIP, KILL])
    assert cells == ["DeepFreeze", table.NOTHING_LEARNT, "-"]
    assert table.reasons(second.as_json())[0].startswith("DeepFreeze: ModuleNotFoundError")


def test_cells_count_what_the_trials_say() -> None:
    trials = [Trial(one) for one in ("detected", "fell back", "silent", "silent", "harmless")]
    assert table.cell(Result(FLIP, trials).as_json()) == "2 of 5 found, 2 silent, 1 harmless"
    trials = [Trial(one) for one in ("older", "older by hand", "lost")]
    by_hand = "2 of 3 right, 1 lost, 1 of them by hand"
    assert table.cell(Result(KILL, trials).as_json()) == by_hand
    result = Result(f"{AFTER} xfs", [Trial("kept")], error="x")
    assert table.cell(result.as_json()) == "1 of 1 kept, FAILED after that"


@pytest.mark.parametrize("outcome", ["silent", "lost", "wrong", "died", "hung", "older by hand"])
def test_the_exit_status_tells_when_deepfreeze_failed(outcome: str) -> None:
    options = command.parse([])
    report = command.Report(options, SEED, {}, {})
    report.take(Row(SAVERS["torch-save"], results=[Result(KILL, [Trial(outcome)])]))
    assert not report.ours_failed()
    report.take(Row(SAVERS["df"], results=[Result(KILL, [Trial("newer"), Trial("kept")])]))
    assert not report.ours_failed()
    report.take(Row(SAVERS["df"], results=[Result(KILL, [Trial("newer"), Trial(outcome)])]))
    assert report.ours_failed()


def test_what_an_agent_finishes_is_not_lost() -> None:
    report = command.Report(command.parse([]), SEED, {}, {})
    lost = [Result(CAPTURED, [Trial("kept"), Trial("lost")])]
    report.take(Row(SAVERS["df"], results=lost))
    assert not report.ours_failed()
    report.take(Row(WITH_AGENT, results=lost))
    assert report.ours_failed()
