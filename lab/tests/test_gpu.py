"""The GPU's bench counts what it claims, tried without a device; nothing here judges a speed."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.experiments.gpu import __main__ as program
from lab.experiments.gpu import resume, stall, torn, window
from lab.measure import devices
from lab.measure.devices import Budget, Lines, OutOfTime, Peaks, Row, Taken, of_kind, read
from lab.measure.loop import Experiment, Segment
from lab.networks import gpu_workloads as models
from lab.tests.conftest import LONG
from lab.writers import loop_gpu as savers
from lab.writers.loop import Saver, SaveRecord
from lab.writers.loop_gpu import SAVERS, DeepFreeze

SEED = "7"
ROUNDS = 2 if LONG else 1
TRY = ["--device", "cpu", "--quick", "--seed", SEED, "--workload", "decoder"]


def run(place: Path, *arguments: str) -> int:
    places = ["--directory", str(place), "--results", str(place / "results")]
    return program.main([*arguments, *TRY, *places])


def written(place: Path, part: str) -> list[Row]:
    return read(place / "results" / f"gpu-{part}.jsonl")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], Path]:
    place = tmp_path_factory.mktemp("gpu")
    assert run(place, "window", "--every", "2,1", "--rounds", str(ROUNDS)) == 0
    return written(place, "window"), place


def test_smoke_has_a_row_of_every_saver_at_every_interval(smoke: tuple[list[Row], Path]) -> None:
    found, _ = smoke
    names = [Saver.name, *(saver.name for saver in SAVERS)]
    wanted = [("decoder", every, name) for every in (2, 1) for name in names]
    summaries = of_kind(found, "row")
    assert [(row["workload"], row["every"], row["saver"]) for row in summaries] == wanted
    missing = {saver.name for saver in SAVERS if saver.missing()}
    for row in summaries:
        assert row["status"] == ("not installed" if row["saver"] in missing else "ok"), row[
            "faults"
        ]
    assert len(of_kind(found, "segment")) == ROUNDS * len(wanted)
    assert len(of_kind(found, "link")) == ROUNDS
    assert of_kind(found, "target") == []  # of a device's link alone


def test_smoke_measures_what_there_is_without_a_device(smoke: tuple[list[Row], Path]) -> None:
    found, _ = smoke
    of_devices = {"device_peak_bytes", "device_above_bytes"}
    for row in of_kind(found, "row"):
        if row["status"] != "ok" or row["saver"] == Saver.name:
            continue
        assert row["saves_committed"] == row["saves_requested"] == ROUNDS * (4 // row["every"])
        for name, figure in row["figures"].items():
            assert (figure is None) == (name in of_devices), name
        assert row["figures"]["run_time_ratio"]["count"] == ROUNDS
        assert row["figures"]["stall_ms"]["count"] == row["saves_committed"]
        for name in ("stall_ms", "to_host_gb_per_second", "to_disk_gb_per_second"):
            assert row["figures"][name]["low"] > 0, name
    (facts,) = of_kind(found, "run")
    for word in ("device", "torch", "date", "commit"):
        assert facts["machine"][word], word


def test_smoke_leaves_no_checkpoints_and_names_no_place(smoke: tuple[list[Row], Path]) -> None:
    _, place = smoke
    assert [path.name for path in place.iterdir()] == ["results"]
    files = {path.name: path.read_text() for path in (place / "results").iterdir()}
    assert sorted(files) == ["gpu-window.jsonl", "gpu.html", "gpu.md"]
    assert all(f"--seed {SEED}" in text and str(place) not in text for text in files.values())
    assert files["gpu.md"].count("| DeepFreeze |") == 2


def test_without_a_device_it_says_so_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert program.main(["--results", str(tmp_path / "results")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "no CUDA device" in said.err
    assert list(tmp_path.iterdir()) == []


def test_all_parts_share_the_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def note(command: list[str], _: float) -> int:
        commands.append(command)
        return 1 if "torn" in command else 0

    monkeypatch.setattr(program, "status_of", note)
    assert run(tmp_path, "--minutes", "10") == 1
    minutes = [float(words[words.index("--minutes") + 1]) for words in commands]
    assert [words[:4] for words in commands] == [
        [sys.executable, "-m", "lab.experiments.gpu", part]
        for part in ("resume", "torn", "stall", "window")
    ]
    assert minutes == [pytest.approx(share, abs=0.1) for share in (2, 4, 2, 10)]  # none took any


def test_a_part_that_takes_too_long_is_told_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "KILL_SECONDS", 0.5)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    for text in ("import time; time.sleep(600)", deaf):
        assert program.status_of([sys.executable, "-c", text], 0.5) == 1
    assert program.status_of([sys.executable, "-c", "raise SystemExit(130)"], 600) == 130


def test_an_interrupted_bench_leaves_no_part_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if not ended:
                ended.append(self)
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        program.status_of([sys.executable, "-c", "import time; time.sleep(600)"], 600)
    assert ended[0].returncode is not None


def test_nothing_is_torn_and_nothing_fails_without_a_device(tmp_path: Path) -> None:
    assert run(tmp_path, "torn", "--times", "3") == 0
    found = of_kind(written(tmp_path, "torn"), "torn")
    assert [row["saver"] for row in found] == ["df", "dcp-staged"]
    assert [(row["trials"], row["torn"], row["failed"]) for row in found] == [(3, 0, 0)] * 2
    (target,) = of_kind(written(tmp_path, "torn"), "target")
    assert (target["what"], target["met"]) == ("torn or failed of 3", True)


def test_trials_that_were_not_run_are_no_success(tmp_path: Path) -> None:
    assert run(tmp_path, "torn", "--times", "3", "--minutes", "0") == 1
    notes = [row["text"] for row in of_kind(written(tmp_path, "torn"), "note")]
    assert ["0 of 3 trials" in text for text in notes] == [True, True]
    (target,) = of_kind(written(tmp_path, "torn"), "target")
    assert (target["measured"], target["met"]) == (None, False)


def test_what_is_stored_torn_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def torn_by_one(saver: Any, step: int, like: dict[str, torch.Tensor]) -> Any:
        found = torn.stored_by_deepfreeze(saver, step, like)
        if step == 2:
            found["1"][-1] += 1
        return found

    monkeypatch.setattr(torn, "SUBJECTS", {DeepFreeze: torn_by_one})
    assert run(tmp_path, "torn", "--times", "3") == 1
    (row,) = of_kind(written(tmp_path, "torn"), "torn")
    assert (row["trials"], row["torn"], row["failed"]) == (3, 1, 0)


def test_a_step_of_the_torn_trial_changes_every_element() -> None:
    training = torn.churning(torn.QUICK, "cpu", random.Random(1))
    before = training.clone()
    training.train_step(1, Saver(training, Path(), 1))
    for name, one in training.clone().items():
        assert bool((one > before[name]).all())


def test_a_resumed_training_ends_bit_for_bit_as_the_other(tmp_path: Path) -> None:
    assert run(tmp_path, "resume") == 0
    (row,) = of_kind(written(tmp_path, "resume"), "resume")
    assert row["same"] is True
    assert row["resumed_from"] == resume.MIDDLE
    assert row["losses"][resume.MIDDLE :] == row["losses_resumed"]
    assert len(set(row["losses"])) == resume.STEPS


def test_a_resumed_training_that_differs_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = ["0x1p0"] * resume.STEPS

    def process(job: resume.Job, _: Budget) -> resume.Outcome:
        if job.resumes:
            return resume.Outcome(resume.MIDDLE, losses[resume.MIDDLE :], "another digest")
        return resume.Outcome(0, losses, "one digest")

    monkeypatch.setattr(resume, "in_new_process", process)
    assert run(tmp_path, "resume") == 1
    assert of_kind(written(tmp_path, "resume"), "resume")[0]["same"] is False


def test_what_the_stream_waits_in_a_fence_is_not_stall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savers, "event", object)
    monkeypatch.setattr(savers, "seconds_between", lambda began, ended: 0.25)
    training = models.workload("decoder", "cpu", quick=True).build(1, in_backward=False)
    saver = DeepFreeze(training, tmp_path / "run", 1)
    saver.on_device = True
    for step in (1, 2):
        training.train_step(step, saver)
        saver.after_step(step)
    saver.drain()
    saver.settle()
    saver.close()
    assert [record.stream_wait_seconds for record in saver.records] == [0.25, 0.0]
    assert all(record.captured_seconds is not None for record in saver.records)
    assert saver.records[0].stall_seconds < 0.25


def taken(saver: type[Saver], steps: list[float], host: int, link: float = 2.0) -> Taken:
    made = Segment(saver.name, 0, 0, seconds=sum(steps), step_seconds=steps)
    made.state_bytes = 10**9
    if not saver.is_baseline:
        made.saves_expected = 2
        made.saves = [
            SaveRecord(2, 0.1, 0.05, captured_seconds=1.0, durable_seconds=2.0, committed=True),
            SaveRecord(4, 5.0, captured_seconds=9.0, durable_seconds=9.0, committed=True),
        ]
    return Taken(made, Peaks(host, None), link)


def test_rates_are_of_the_first_save_and_run_time_of_the_steps_behind_it() -> None:
    workload = models.workload("decoder", "cpu", quick=True)
    one = Experiment("decoder", workload, 2, (Saver, DeepFreeze), 1, 4, 1)
    both = [taken(Saver, [1, 1, 1, 1], 10), taken(DeepFreeze, [9, 9, 1, 4], 25)]
    none, ours = devices.rows(one, both)
    medians = {name: one["median"] for name, one in ours["figures"].items() if one is not None}
    assert medians["run_time_ratio"] == 2.5
    assert medians["until_durable_ratio"] == 23 / 4
    assert (medians["to_host_gb_per_second"], medians["to_disk_gb_per_second"]) == (1.0, 0.5)
    assert medians["to_host_of_link"] == 0.5
    assert medians["host_above_bytes"] == 15
    assert none["figures"]["run_time_ratio"] is None
    assert devices.targets(one, [none, ours]) == []  # neither large nor at every 4th step


def test_targets_are_judged_by_what_was_measured() -> None:
    workload = models.workload("decoder", "cpu", quick=True)
    one = Experiment("decoder", workload, 4, (Saver, DeepFreeze), 1, 8, 1)
    both = [taken(Saver, [1.0] * 8, 10), taken(DeepFreeze, [1.0] * 4 + [1.01] * 4, 25)]
    both[1].segment.state_bytes = 16 * 10**9
    link, stall, run_time = devices.targets(one, devices.rows(one, both))
    assert (link["measured"], link["met"]) == (8.0, True)  # 16 GB in a second, over 2 GB/s
    assert (stall["what"], stall["measured"], stall["met"]) == ("stall in ms, max of 2", 5e3, False)
    assert run_time["measured"] == pytest.approx(1.01)
    assert run_time["met"] is True
    assert devices.judged("nothing", None, "<=", 1)["met"] is False


def test_what_would_not_fit_is_not_begun(tmp_path: Path) -> None:
    options = program.parse([*TRY, "--savers", "df", "--directory", str(tmp_path)])
    (one,) = window.experiments(options, 1)
    course = window.Course(one, "cpu", tmp_path)
    with Lines(tmp_path / "lines") as lines:
        course.run_round(0, 1.0, Budget(minutes=0), lines)
    assert course.stopped
    assert course.taken == []


def test_what_takes_too_long_is_ended_and_the_rest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def over(*_: object) -> None:
        raise OutOfTime

    monkeypatch.setattr(window.Course, "run_round", over)
    assert run(tmp_path, "window") == 0
    found = written(tmp_path, "window")
    assert {row["status"] for row in of_kind(found, "row")} == {"not run"}
    assert "time was over" in of_kind(found, "note")[0]["text"]


def test_the_decoder_has_the_claimed_size() -> None:
    with torch.device("meta"):
        model = models.Decoder()
    assert sum(parameter.numel() for parameter in model.parameters()) == 1_313_722_368


def test_a_training_that_can_not_be_resumed_is_shown_with_the_reason(tmp_path: Path) -> None:
    assert run(tmp_path, "resume", "--minutes", "0") == 1
    (row,) = of_kind(written(tmp_path, "resume"), "resume")
    assert (row["same"], row["error"]) == (False, "the time was over")


def test_the_stall_of_many_saves_has_its_spread(tmp_path: Path) -> None:
    assert run(tmp_path, "stall", "--times", "3") == 0
    (row,) = of_kind(written(tmp_path, "stall"), "stall")
    assert (row["saves"], row["errors"]) == (3, [])
    for what in ("call", "captured", "durable"):
        assert 0 < row[what]["p50"] <= row[what]["p99"] <= row[what]["worst"]
    assert "## stall" in (tmp_path / "results/gpu.md").read_text()


def test_few_saves_have_no_p99() -> None:
    row = {"workload": "w", "call": stall.summary([0.001] * 99 + [0.004])}
    few, many = stall.targets({**row, "saves": 100}), stall.targets({**row, "saves": 500})
    assert [one["measured"] for one in few] == [pytest.approx(1.0), None]
    assert [one["met"] for one in few] == [True, False]
    assert [one["met"] for one in many] == [True, True]
    assert stall.targets({"workload": "w", "saves": 0})[0]["met"] is False


def test_without_time_no_stall_is_measured(tmp_path: Path) -> None:
    assert run(tmp_path, "stall", "--times", "3", "--minutes", "0") == 1
    (row,) = of_kind(written(tmp_path, "stall"), "stall")
    assert row["saves"] == 0
