"""Restarts compared: the verdicts by hand-made runs, one real restart of torch, and its rows."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.experiments import determinism
from lab.experiments.determinism import Restart
from lab.measure import run as study_run
from lab.measure.case import Case, Place, Plan
from lab.measure.program import Environments, ask
from lab.measure.row import check
from lab.networks.asked import ABSENT
from lab.programs import restart_job as words
from lab.programs.restart_job import BIT_IDENTICAL, DIVERGED, FAILED, STEPS, ULP_CLOSE
from lab.programs.restart_protocol import Array, digests, newest
from lab.programs.restart_verdict import Found, Record, baseline, restart

RESUMED_FROM = 10
SMALL = np.float32(3e-7)


def state(step: int) -> dict[str, str]:
    names = ("data/batch", "rng/torch", "optimizer/0", "model/w", "loss")
    return {name: f"{name} {step}" for name in names}


def run(first: int = 1, last: int = STEPS) -> Record:
    weights: dict[str, Array] = {"model/w": np.ones(4, np.float32), "rng/torch": np.arange(3)}
    return Record({step: state(step) for step in range(first, last + 1)}, last=weights)


def crashed() -> Record:
    record = run(last=13)
    record.killed = True
    return record


def resumed() -> Record:
    record = run(RESUMED_FROM + 1)
    record.restored_step = RESUMED_FROM
    found = state(RESUMED_FROM)
    record.restored = {name: found[name] for name in ("rng/torch", "optimizer/0", "model/w")}
    return record


def changed(record: Record, step: int, *names: str) -> Record:
    for later in range(step, STEPS + 1):
        record.steps[later] = {**record.steps[later], **dict.fromkeys(names, "other")}
    return record


def test_a_restart_that_changes_nothing() -> None:
    assert restart(run(), crashed(), resumed()) == Found(BIT_IDENTICAL, restored_step=RESUMED_FROM)


def test_the_first_difference_is_named_by_what_causes_it() -> None:
    other = changed(resumed(), 12, "loss", "model/w", "rng/torch")
    other.last = {"model/w": np.zeros(4, np.float32), "rng/torch": np.arange(3)}
    found = restart(run(), crashed(), other)
    assert (found.verdict, found.first_step, found.first_entry) == (DIVERGED, 12, "rng/torch")
    assert found.learns_otherwise == 12


def test_an_entry_that_is_not_there_differs() -> None:
    other = resumed()
    del other.steps[STEPS]["optimizer/0"]  # type: ignore[attr-defined]
    found = restart(run(), crashed(), other)
    assert (found.first_step, found.first_entry) == (STEPS, "optimizer/0")
    assert found.learns_otherwise is None


def test_what_did_not_come_back_is_known_before_anything_is_trained() -> None:
    other = changed(resumed(), RESUMED_FROM + 1, "data/batch")
    other.restored = {"rng/torch": "other", "model/w": state(RESUMED_FROM)["model/w"]}
    assert restart(run(), crashed(), other).missing == ("optimizer", "rng", "data")


@pytest.mark.parametrize(
    ("weights", "generator", "verdict"),
    [(1 + SMALL, 3, ULP_CLOSE), (1.001, 3, DIVERGED), (np.nan, 3, DIVERGED), (1, 4, DIVERGED)],
)
def test_rounding_alone_is_close(weights: float, generator: int, verdict: str) -> None:
    other = changed(resumed(), 12, "model/w")
    values = np.full(4, weights, np.float32)
    other.last = {"model/w": values, "rng/torch": np.arange(generator - 3, generator)}
    assert restart(run(), crashed(), other).verdict == verdict


def test_a_restart_fails_where_it_stops() -> None:
    ended = run(last=4)
    ended.error = "OSError: no"
    assert restart(run(), ended, resumed()).reason == "before the kill: OSError: no"
    nothing = Record(error="LookupError: none")
    found = restart(run(), crashed(), nothing)
    assert (found.verdict, found.reason) == (FAILED, "restore: LookupError: none")
    broken = resumed()
    del broken.steps[STEPS]
    broken.error = "ValueError: x"
    found = restart(run(), crashed(), broken)
    assert (found.verdict, found.reason) == (FAILED, "after the restore of step 10: ValueError: x")


def test_saves_that_change_the_training_are_told_apart() -> None:
    disturbing = crashed()
    disturbing.steps[6] = {**disturbing.steps[6], "rng/torch": "other"}
    found = restart(run(), disturbing, resumed())
    assert (found.verdict, found.first_step) == (DIVERGED, 6)
    assert "the saves changed the training" in found.reason


def test_a_training_that_does_not_repeat_itself_is_no_writers_fault() -> None:
    assert baseline(run(), run()) == Found(BIT_IDENTICAL)
    assert baseline(run(), changed(run(), 3, "loss")) == Found(words.NONDETERMINISTIC, 3, "loss")
    assert baseline(run(), run(last=3)).verdict == FAILED


def test_digests_see_dtype_and_shape_and_come_causes_first() -> None:
    values = np.arange(4, dtype=np.int32)
    found = digests([("loss", 1.0), ("model/w", values), ("data/batch", values.reshape(2, 2)),
                     ("rng/x", values.view(np.float32))])  # fmt: skip
    assert list(found) == ["data/batch", "rng/x", "model/w", "loss"]
    assert len(set(found.values())) == 4


def test_the_newest_is_the_highest_number(tmp_path: Path) -> None:
    for name in ("step-5.pt", "step-10.pt", "step-x.pt"):
        (tmp_path / name).touch()
    assert newest(tmp_path, "step-*.pt") == (10, tmp_path / "step-10.pt")
    with pytest.raises(LookupError, match="no checkpoint"):
        newest(tmp_path, "other-*")


def test_a_control_that_shows_nothing_has_no_power() -> None:
    control = Restart("df", (words.MODEL,), control=True)
    assert "no power" in determinism.meaning(control, found(BIT_IDENTICAL))
    assert "no power" in determinism.meaning(control, found(DIVERGED))  # but the model is the same
    assert "must diverge" in determinism.meaning(control, found(DIVERGED, 11))
    threads = Restart("df", fault=words.OTHER_THREADS)
    assert "no difference" in determinism.meaning(threads, found(BIT_IDENTICAL))
    assert determinism.meaning(Restart("df"), found(DIVERGED, 11)) == ""


def found(verdict: str, learns_otherwise: int | None = None) -> dict[str, Any]:
    return Found(verdict, learns_otherwise=learns_otherwise).as_json()


@pytest.mark.parametrize("quick", [True, False])
def test_every_framework_has_its_own_writer_ours_and_a_control(quick: bool) -> None:
    """And a plan gives the same again."""
    plan = Plan(quick, 7)
    made = [case for case in determinism.cases(plan) if not case.name.startswith(ABSENT)]
    assert [case.name for case in made] == ["pytorch", "chainer", "tensorflow", "jax"]
    assert [case.seconds for case in made] == [
        case.seconds for case in determinism.cases(plan) if not case.name.startswith(ABSENT)
    ]
    for subject in determinism.SUBJECTS:
        wanted = [each for each in subject.restarts if each.quick or not quick]
        assert len(set(wanted)) == len(wanted)
        assert {each.writer for each in wanted} <= set(determinism.TITLES)
        assert any(each.control for each in wanted)
        assert any(each.writer.startswith("df") for each in wanted)
        assert any(not each.writer.startswith("df") and not each.control for each in wanted)


def test_torch_is_killed_and_resumed(tmp_path: Path) -> None:
    """By DeepFreeze with everything, and by torch.save without the generator."""
    subject = determinism.SUBJECTS[0]
    rng = tuple(part for part in words.PARTS if part != words.RNG)
    wanted = (Restart("df"), Restart("torch-save", rng, control=True),
              Restart("df", fault=words.KILLED_IN_SAVE))  # fmt: skip
    small = determinism.Subject(subject.framework, subject.program, wanted, 1.0, 1.0)
    rows = rows_of(determinism.case(Plan(True, 7), small), tmp_path)
    assert [row["verdict"] for row in rows] == [BIT_IDENTICAL, BIT_IDENTICAL, DIVERGED,
                                                BIT_IDENTICAL]  # fmt: skip
    assert [row["writer"] for row in rows] == ["none", "df", "torch-save", "df"]
    assert rows[2]["missing"] == "rng"
    assert (rows[2]["first_step"], rows[2]["first_entry"]) == (RESUMED_FROM + 1, "rng/torch")
    detail = json.loads(str(rows[1]["detail"]))
    assert (detail["killed_at"], detail["resumed_from"]) == (words.KILL_STEP, RESUMED_FROM)
    assert "torch 2" in str(rows[0]["versions"])


def test_what_quick_leaves_out_has_its_rows(tmp_path: Path) -> None:
    wanted = (Restart("df"), Restart("torch-save", fault=words.KILLED_IN_SAVE, quick=False))
    small = determinism.Subject("pytorch", "torch", wanted, 1.0, 1.0)
    (*_, left) = rows_of(determinism.case(Plan(True, 7), small), tmp_path)
    assert (left["status"], left["writer"], left["fault"]) == (
        "left out", "torch-save", words.KILLED_IN_SAVE,
    )  # fmt: skip


@pytest.mark.parametrize("quick", [True, False])
def test_workers_and_ranks_are_not_silently_left_out(quick: bool, tmp_path: Path) -> None:
    cases = [one for one in determinism.cases(Plan(quick, 7)) if one.name.startswith(ABSENT)]
    assert [one.about["component"] for one in cases] == [
        "workers that load data", "several ranks",
    ]  # fmt: skip
    for one in cases:
        (row,) = study_run.rows_of(one, Environments(), tmp_path, Plan(quick, 7))
        assert row["status"] == "left out"


def rows_of(case: Case, directory: Path) -> list[dict[str, Any]]:
    rows = [{"status": "ok", **row} for row in case.work(Place(directory, Plan(True, 7)))]
    return [check(row) for row in rows]


def test_a_disk_that_is_full_says_nothing_about_a_writer() -> None:
    full = Found(FAILED, reason="before the kill: OSError: [Errno 28] No space left on device")
    assert determinism.row(Restart("df"), full.as_json())["status"] == "no space"
    broken = Found(FAILED, reason="before the kill: ValueError: x")
    assert "status" not in determinism.row(Restart("df"), broken.as_json())


def test_a_framework_that_is_not_there_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment's Python, which has no Chainer."""
    monkeypatch.setattr(determinism, "python", lambda _: Path(sys.executable))
    plan = Plan(True, 7)
    chainer = next(each for each in determinism.cases(plan) if each.name == "chainer")
    (row,) = study_run.rows_of(chainer, Environments(), tmp_path, plan)
    assert (row["framework"], row["status"]) == ("chainer", "not installed")


def test_a_writer_that_fails_is_a_verdict(tmp_path: Path) -> None:
    """Where nothing was saved, nothing is restored: and the next one is done as well."""
    no_checkpoint = {"writer": "no-such", "saved": [], "variant": "", "fault": words.KILLED,
                     "delay_seconds": 0.0}  # fmt: skip
    asked = {"framework": "torch", "seed": 7, "directory": str(tmp_path),
             "restarts": [no_checkpoint]}  # fmt: skip
    answer = ask(Path(sys.executable), "lab.programs.restart", asked, tmp_path)
    assert answer["restarts"][0]["verdict"] == FAILED
    assert "KeyError" in answer["restarts"][0]["reason"]
