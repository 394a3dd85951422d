"""States of which only a part changes: the bytes that were written, changed and restored.

Nothing here judges a speed. PEFT itself is tried in tests/frameworks/test_bench_peft.py.
"""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.experiments import everything, unchanged
from lab.measure import loop as measure
from lab.measure.loop import Experiment, Segment
from lab.measure.partial import PartialSaves, copied, differing, header_bytes
from lab.measure.partial_summary import Partial, partial, partials, targets
from lab.networks.partial_workloads import BUSY, EXPERTS, PARTIAL, experts_parts
from lab.networks.torch_workloads import BATCH_COUNT, WORKLOADS, Training
from lab.report import bench_page, partial_table
from lab.report.loop_table import Result
from lab.writers.loop import Saver, SaveRecord, Window
from lab.writers.loop_partial import AdapterTorchSave
from lab.writers.loop_peers import TorchSave

ROOT = Path(__file__).resolve().parents[2]
TINY = WORKLOADS["tiny"]
SEED = 3
WHOLE = ("df-default", "df-latency", "df-rewrite", "torch-save", "dcp-save", "dcp-async")
SHARING = ("df-default", "df-latency")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("smoke")
    command = [sys.executable, "-m", unchanged.PROGRAM, "--smoke", "--workload", "tiny-lora"]
    command += ["--directory", str(place), "--json", str(place / "unchanged.json")]
    command += ["--markdown", str(place / "table.md"), "--seed", str(SEED), "--threads", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in place.iterdir()) == ["table.md", "unchanged.json"]
    found: dict[str, Any] = json.loads((place / "unchanged.json").read_text())
    (one,) = found["experiments"]
    page, shown = bench_page.page(place), (place / "table.md").read_text()
    by_saver = {part["saver"]: part for part in one["partial"]}
    return {**found, "one": one, "parts": by_saver, "page": page, "shown": shown}


def test_smoke_commits_every_save_of_every_saver(smoke: dict[str, Any]) -> None:
    found = {row["saver"]: row for row in smoke["one"]["rows"]}
    assert set(found) == {"none", *unchanged.SAVERS}
    for row in found.values():
        assert row["status"] == "ok", row
        assert row["saves_committed"] == row["saves_requested"]
        assert row["same_training"] in (True, None)


def test_smoke_counts_for_each_save_the_files_that_it_wrote(smoke: dict[str, Any]) -> None:
    state, parts = smoke["one"]["state_bytes"], smoke["parts"]
    changed = parts["torch-save"]["changed_bytes"]["median"]
    assert 0 < changed < state / 50
    for name in set(WHOLE) - set(SHARING):
        assert state < parts[name]["new_bytes"]["median"] < 1.1 * state, name
    for name in SHARING:
        assert changed < parts[name]["new_bytes"]["median"] < state / 10, name
        assert 0.9 < parts[name]["worst_of_changed"] < 1.5, name
    assert parts["adapter"]["new_bytes"]["median"] < state / 10
    assert all(parts[name]["saves"] == 4 for name in unchanged.SAVERS)


def test_smoke_says_which_state_comes_back_whole(smoke: dict[str, Any]) -> None:
    parts = smoke["parts"]
    lost = {name: (parts[name]["lost_bytes"], parts[name]["lost_parts"]) for name in WHOLE}
    assert lost == dict.fromkeys(WHOLE, (0, []))
    assert parts["adapter"]["lost_parts"] == ["model"]
    assert parts["adapter-weights"]["lost_parts"] == ["model", "optim"]
    assert parts["adapter"]["lost_bytes"] > smoke["one"]["state_bytes"] / 2


def test_smoke_shows_all_savers_and_their_ratios(smoke: dict[str, Any]) -> None:
    rows = [line for line in smoke["shown"].splitlines() if line.startswith("| DeepFreeze")]
    assert len(rows) == 3
    assert all(row.count("|") == len(partial_table.HEADINGS) + 1 for row in rows)
    assert all("| whole |" in row for row in rows)
    assert smoke["shown"].count("not whole: ") == 2
    assert smoke["page"].count("<svg") == 2
    for name in unchanged.SAVERS:
        assert smoke["parts"][name]["run_ratio"]["count"] == 1, name
    assert smoke["parts"]["none"]["run_ratio"] is None
    what = {each["what"] for each in smoke["one"]["targets"]}
    assert any(each.startswith("bytes over those that changed") for each in what)


def experiment(*savers: type[Saver], rounds: int = 1) -> Experiment:
    return Experiment("tiny", TINY, 1, savers, rounds, 2, SEED, 0.0, 2, PartialSaves)


def measured(one: Experiment, directory: Path) -> Result:
    return Result(one, list(measure.run(one, directory, lambda _: lambda _: None)))


def only(result: Result) -> Partial:
    (found,) = partials(result.experiment, result.segments)
    return found


class Links(TorchSave):
    """Its checkpoints are links to the file of the first."""

    name = "links"

    def save(self, record: SaveRecord, began: float) -> None:
        if self.retention.newest() is None:
            super().save(record, began)
            return
        path = self.directory / f"step-{record.step}"
        os.link(self.newest_saved(), path)
        self.commit(record, began, path)


def test_a_linked_file_is_not_counted_again_and_an_old_state_is_not_whole(tmp_path: Path) -> None:
    found = only(measured(experiment(Links), tmp_path))
    assert found.new_bytes is not None
    assert found.new_bytes.high == 0
    assert found.lost_parts == ("ema", "model", "optim")


class Forgets(TorchSave):
    """Restores all but one tensor."""

    name = "forgets"

    def restore(self, training: Any) -> None:
        before = training.parts.model.hidden.bias.detach().clone()
        super().restore(training)
        with torch.no_grad():
            training.parts.model.hidden.bias.copy_(before)


def test_one_tensor_that_does_not_come_back_shows(tmp_path: Path) -> None:
    result = measured(experiment(Saver, Forgets), tmp_path)
    found = partials(result.experiment, result.segments)[1]
    assert (found.lost_bytes, found.lost_parts) == (1024, ("model",))
    headings, lines = partial_table.table(result)
    assert "run time of the adapter's" not in headings
    (line,) = [line for line in lines if line[0] == Forgets.title]
    assert any(cell.startswith("not whole: ") and cell.endswith("of model") for cell in line)


class Refuses(TorchSave):
    """Fails in a save that is looked at."""

    name = "refuses"

    def save(self, record: SaveRecord, began: float) -> None:
        if record.step == 6:
            record.error = "no room"
            return
        super().save(record, began)


def test_a_save_that_fails_while_it_is_looked_at_fails_the_saver(tmp_path: Path) -> None:
    result = measured(experiment(Refuses), tmp_path)
    assert [row["status"] for row in result.failed()] == ["failed"]
    assert "save of step 6: no room" in result.segments[0].fault
    assert only(result).saves == 0


def test_saves_that_are_looked_at_are_not_among_the_measured(tmp_path: Path) -> None:
    (segment,) = measured(experiment(TorchSave), tmp_path).segments
    assert [save.step for save in segment.saves] == [3, 4]
    assert len(segment.examined["saves"]) == 4


def test_bits_are_compared_and_not_numbers() -> None:
    nan, zero = torch.tensor(float("nan")), torch.tensor([0.0])
    assert differing({"a": nan, "b": zero}, {"a": nan.clone(), "b": -zero}) == ["b"]
    assert differing({"a": nan}, {}) == ["a"]
    assert differing({"a": zero}, {"a": torch.zeros(1, 1)}) == ["a"]


def test_headers_are_what_is_no_tensors(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(10_000)}, tmp_path / "a")
    assert header_bytes(tmp_path / "a") == (tmp_path / "a").stat().st_size - 40_000
    (tmp_path / "manifest").write_text('{"a": 1}')
    assert header_bytes(tmp_path / "manifest") == 8
    (tmp_path / "other").write_bytes(b"\x00\x01")
    assert header_bytes(tmp_path / "other") == 0


def segment(saver: type[Saver], index: int, seconds: float, **written: int) -> Segment:
    made = Segment(saver.name, index, 0, seconds=seconds, saves_expected=1)
    made.saves = [SaveRecord(1, seconds / 10, committed=True)]
    if written:
        made.examined = {
            "saves": [written], "restore_seconds": 1.0, "lost_bytes": 0, "lost_parts": []
        }  # fmt: skip
    return made


def bare(index: int, seconds: float) -> Segment:
    return Segment(Saver.name, index, 0, seconds=seconds)


WRITTEN = {"changed_bytes": 100, "new_bytes": 150, "header_bytes": 45}


def test_ratios_over_the_adapter_alone_are_of_one_round() -> None:
    segments = [segment(AdapterTorchSave, 0, 1.0), segment(AdapterTorchSave, 1, 4.0)]
    segments += [segment(Window, 1, 5.0, **WRITTEN), segment(Window, 0, 2.0, **WRITTEN)]
    found = partial(Window, segments)
    for ratio in (found.run_ratio, found.stall_ratio):
        assert ratio is not None
        assert (ratio.low, ratio.high) == (1.25, 2.0)
    assert found.worst_of_changed == pytest.approx(1.05)


@pytest.mark.parametrize(("seconds", "header", "met"), [
    (1.3, 45, [True, True, True]), (1.4, 45, [True, False, False]), (1.3, 39, [False, True, True]),
])  # fmt: skip
def test_targets_are_judged_by_bytes_stall_and_run_time(
    seconds: float, header: int, met: list[bool]
) -> None:
    one = experiment(Saver, Window, AdapterTorchSave)
    written = {**WRITTEN, "header_bytes": header}
    segments = [bare(0, 1.0), segment(AdapterTorchSave, 0, 1.0, **WRITTEN)]
    segments += [segment(Window, 0, seconds, **written)]
    assert [each.met for each in targets(one, segments)] == met
    without = [each for each in segments if each.saver != AdapterTorchSave.name]
    assert targets(one, without) == []


def test_a_busy_machine_gets_a_verdict_on_bytes_alone() -> None:
    one = experiment(Saver, Window, AdapterTorchSave, rounds=2)
    segments = [bare(0, 1.0), bare(1, 1.3)]
    for index in range(2):
        segments += [segment(Window, index, 1.0, **WRITTEN), segment(AdapterTorchSave, index, 1.0)]
    (judged,) = targets(one, segments)
    assert judged.what.startswith("bytes over")
    assert "no verdict on times" in partial_table.text(Result(one, segments))


def test_an_expert_without_tokens_rests() -> None:
    for in_turn in (False, True):
        training = Training(experts_parts(in_turn=in_turn, width=8, inner=16))
        idle = Saver(training, Path(), 1)
        assert len(changed_experts(training, idle, 1)) == EXPERTS
        busy = [changed_experts(training, idle, step) for step in range(2, 2 + BATCH_COUNT)]
        assert all(len(each) == BUSY for each in busy)
        assert len(set().union(*busy)) == (EXPERTS if in_turn else BUSY)


def changed_experts(training: Training, idle: Saver, step: int) -> set[str]:
    before = copied(training)
    training.train_step(step, idle)
    changed = differing(copied(training), before)
    return {name.split(".")[2] for name in changed if name.startswith("model.experts.")}


def test_what_is_frozen_has_a_filter_and_nothing_else_has() -> None:
    for name in PARTIAL:
        with torch.device("meta"):
            parts = PARTIAL[name].make_parts()
        has_filter = AdapterTorchSave in unchanged.savers_of(name, None)
        assert has_filter == parts.has_frozen(), name


def test_peft_is_asked_for_by_name_only_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(unchanged, "WITH_PEFT", False)
    assert unchanged.chosen(unchanged.parse([]))[0] == "lora"
    with pytest.raises(SystemExit):
        unchanged.parse(["--workload", "peft"])
    assert "PEFT is not installed here" in capsys.readouterr().err
    monkeypatch.setattr(unchanged, "WITH_PEFT", True)
    assert unchanged.chosen(unchanged.parse([]))[0] == "peft"


@pytest.mark.parametrize("quick", [True, False])
def test_make_bench_has_it(quick: bool) -> None:
    found = [words for words in everything.commands(Path("out"), quick=quick)
             if words[0] == unchanged.PROGRAM]  # fmt: skip
    (words,) = found
    options = unchanged.parse(words[1:])
    assert options.json == Path("out/unchanged.json")
    assert not quick or "adapter" in options.savers


def test_a_stall_is_the_median_of_a_segment() -> None:
    one = segment(Window, 0, 1.0)
    one.saves = [dataclasses.replace(one.saves[0], call_seconds=value) for value in (1.0, 9.0, 2.0)]
    one.saves_expected = 3
    found = partial(Window, [one, dataclasses.replace(one, saver=AdapterTorchSave.name)])
    assert found.stall_ratio is not None
    assert found.stall_ratio.median == 1.0
