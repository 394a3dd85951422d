"""What saving costs by itself is counted as it claims; nothing here judges a speed."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from lab.experiments import growth
from lab.measure import alone as jobs
from lab.measure import alone_child as child
from lab.measure import alone_rounds as rounds
from lab.measure import fio
from lab.measure.alone_rounds import FIO, Experiment, Result
from lab.measure.program import gist
from lab.networks.layout import Layout, TensorSpec, equal_tensors, read, small_tensors, tiny
from lab.networks.layouts import LAYOUTS, named
from lab.programs.answer import answer
from lab.report import alone_summary as summary
from lab.report import alone_table as table
from lab.report import bench_page as page
from lab.report import plots
from lab.writers.menu import MENU, OWN, SAVERS, Entry
from lab.writers.saver import Pending
from lab.writers.torch_savers import DeepFreezeLatency, TorchSave
from lab.writers.values import Array, Values, wrong

ROOT = Path(__file__).resolve().parents[2]
SEED = 5
HERE = "lab.tests.test_storage"
OURS, SYNCED = SAVERS["df"], SAVERS["torch-save-fsync"]


class WrongBytes(TorchSave):
    """Restores one bit that was not saved."""

    def restore(self, directory: Path, step: int) -> None:
        super().restore(directory, step)
        bits = self.tensors["hidden.bias"].view(torch.int32)
        bits[100] ^= 1


class RestoresNothing(TorchSave):
    def restore(self, directory: Path, step: int) -> None:
        """Leaves the live state as it is."""


class SavesLater(TorchSave):
    """Says that the state may change, and saves it then."""

    def save(self, directory: Path, step: int) -> Pending:
        path = self.place(directory, step)
        return Pending(committed=lambda: torch.save(self.tensors, path))


class WrongPart(TorchSave):
    def load_one(self, directory: Path, step: int, name: str) -> Array:
        return numpy.asarray(super().load_one(directory, step, name) + 1)


class Raises(TorchSave):
    def save(self, directory: Path, step: int) -> Any:
        raise OSError("no such luck")


class Dies(TorchSave):
    def save(self, directory: Path, step: int) -> Any:
        sys.exit("gone")


def answered(_: Entry, wanted: child.Request, _seconds: float) -> dict[str, Any]:
    """In this process."""
    found: dict[str, Any] = answer(child.work, dataclasses.asdict(wanted))
    return found


def entry(kind: type[TorchSave]) -> Entry:
    name = kind.__name__
    return dataclasses.replace(SAVERS["torch-save"], name=name, title=name, module=HERE, kind=name)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str, Path]:
    place = tmp_path_factory.mktemp("storage")
    command = [
        sys.executable,
        "-m",
        "lab.experiments.storage",
        "--workload",
        "tiny",
        "--rounds",
        "1",
    ]
    command += ["--savers", "df", "torch-save", "--saves", "2", "--seed", str(SEED)]
    command += ["--directory", str(place), "--json", str(place / "storage.json")]
    command += ["--markdown", str(place / "summary.md")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((place / "storage.json").read_text())
    return figures, done.stdout, (place / "summary.md").read_text(), place


def test_smoke_measures_every_save_and_a_verified_restore(
    smoke: tuple[dict[str, Any], str, str, Path],
) -> None:
    figures, _, _, _ = smoke
    (one,) = figures["experiments"]
    measured = {row["saver"]: row for row in one["rows"]}
    assert list(measured) == ["df", "torch-save"]
    raw = {result["saver"]: result for result in one["results"]}
    assert set(raw) == {"df", "torch-save", FIO}
    for name, row in measured.items():
        assert row["status"] == "ok", row["faults"]
        assert len(raw[name]["saves"]) == one["saves"] == 3
        assert raw[name]["restore"]["wrong"] == []
        assert set(summary.SENSES) - set(row["figures"]) <= {
            "write_share",
            "overwrite_share",
            "read_share",
        }
        for save in raw[name]["saves"]:
            assert 0 < save["call_seconds"] <= save["captured_seconds"]
            assert save["captured_seconds"] <= save["committed_seconds"] <= save["durable_seconds"]
            assert one["state_bytes"] <= save["file_bytes"] < 1.2 * one["state_bytes"]
    if shutil.which("fio"):
        assert raw[FIO]["write"]["bytes"] == fio.BLOCK_BYTES
        assert "write_share" in measured["df"]["figures"]


def test_smoke_leaves_no_files_and_names_no_place(
    smoke: tuple[dict[str, Any], str, str, Path],
) -> None:
    figures, output, markdown, place = smoke
    assert sorted(path.name for path in place.iterdir()) == ["storage.json", "summary.md"]
    for text in (output, markdown, json.dumps(figures)):
        assert f"--seed {SEED}" in text
        assert str(place) not in text
    assert "DeepFreeze against the best peer" in markdown


def test_the_page_needs_nothing_but_itself(
    smoke: tuple[dict[str, Any], str, str, Path], tmp_path: Path
) -> None:
    figures, _, _, _ = smoke
    (tmp_path / "storage.json").write_text(json.dumps(figures))
    text = page.page(tmp_path)
    assert text.count("<svg") == len(page.STORAGE_PLOTS)
    for outside in ("http", "src=", "@import", "url("):
        assert outside not in text
    assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', text))


def measured(tmp_path: Path, kind: type[TorchSave]) -> tuple[Experiment, list[Result]]:
    experiment = Experiment(tiny(), (entry(kind),), rounds=1, saves=1, seed=SEED)
    layout = tmp_path / "layout.json"
    experiment.layout.write(layout)
    found = rounds.measure(experiment, experiment.entries[0], tmp_path, layout)
    return experiment, [{"saver": kind.__name__, "round": 0, **found}]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (WrongBytes, "restored wrong bytes in 1 tensors: hidden.bias"),
        (RestoresNothing, "restored wrong bytes in 5 tensors"),
        (SavesLater, "restored wrong bytes in 5 tensors"),
        (WrongPart, "loaded wrong bytes of hidden.weight"),
        (Raises, "OSError: no such luck"),
        (Dies, "the process ended without an answer: gone"),
    ],
)
def test_a_saver_that_fails_is_shown_with_its_error(
    kind: type[TorchSave], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind is not Dies:  # the others need no process of their own, which takes seconds to start
        monkeypatch.setattr(jobs, "ask", answered)
    experiment, results = measured(tmp_path, kind)
    (row,) = summary.rows(experiment, results)
    assert row["status"] == "failed"
    assert error in row["faults"][0]
    for shown in (table.text(experiment, results), table.markdown(experiment, results)):
        assert "FAILED" in shown
        assert error in shown
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("name", [one.name for one in MENU if one.environment == OWN])
def test_every_saver_of_torch_restores_what_it_saved(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "ask", answered)
    monkeypatch.setattr(child, "settle", lambda: None)
    tiny().write(tmp_path / "layout")
    found = jobs.measure(SAVERS[name], tmp_path / "layout", tmp_path / "place", SEED, saves=2)
    assert "error" not in found, found
    assert found["saves"][1]["file_bytes"] > tiny().nbytes


def test_with_the_latency_profile_what_is_attached_is_captured_later(tmp_path: Path) -> None:
    saver = DeepFreezeLatency(tiny(), Values(SEED))
    saver.fill(1)
    saver.open(tmp_path)
    assert saver.checkpointer is not None
    handle = saver.checkpointer.save(1, {"state": saver.state()})
    assert handle is not None
    handle.wait("durable")
    assert handle.status().guarded_bytes == 300 * 64 * 4 + 256 * 300 * 4  # what is not small
    saver.close()


def test_what_is_not_installed_is_no_failure() -> None:
    absent = {"saver": "df", "round": 0, "error": "ModuleNotFoundError: No module named 'x'"}
    assert summary.status([absent]) == "not installed"
    assert summary.status([]) == "not run"
    assert summary.status([absent, {**absent, "error": "OSError"}]) == "failed"


def test_every_round_runs_all_and_fio_in_an_order_of_its_own() -> None:
    experiment = Experiment(tiny(), MENU, rounds=20, saves=1, seed=SEED)
    orders = [tuple(one and one.name for one in experiment.order(index)) for index in range(20)]
    assert all(set(order) == {None, *SAVERS} for order in orders)
    assert len(set(orders)) > 10
    assert orders[0] == tuple(one and one.name for one in experiment.order(0))


def result(saver: str, index: int, seconds: float, stall: float = 0.5) -> Result:
    save = {
        "call_seconds": stall,
        "captured_seconds": stall,
        "committed_seconds": seconds,
        "durable_seconds": seconds,
        "cpu_seconds": 1.0,
        "written_bytes": 2000,
        "peak_bytes": 500,
        "file_bytes": 1000,
    }
    first = {**save, "captured_seconds": 9.0, "peak_bytes": 4000}
    restored = {"seconds": 2 * seconds, "cpu_seconds": 1.0, "peak_bytes": 0, "partial_seconds": 0.1}
    saves = [first, save, save]
    return {"saver": saver, "round": index, "open_seconds": 0, "saves": saves, "restore": restored}


def limit(index: int, write: float, read_seconds: float) -> Result:
    def moved(seconds: float) -> dict[str, Any]:
        return dataclasses.asdict(fio.Transfer(4000, seconds, 0.0, "io_uring"))

    ways = {"write": moved(write), "overwrite": moved(write / 2), "read": moved(read_seconds)}
    return {"saver": FIO, "round": index, **ways}


THOUSAND = Layout("thousand", "a thousand bytes", (TensorSpec("w", "uint8", (1000,)),))


def test_shares_of_the_device_are_paired_within_the_round() -> None:
    results = [result("df", 0, 1.0), result("df", 1, 4.0), limit(1, 8.0, 16.0), limit(0, 4.0, 4.0)]
    found = summary.row(THOUSAND, OURS, results)
    share, read_share = found["figures"]["write_share"], found["figures"]["read_share"]
    # fio needs 1 s and 2 s for the thousand bytes; reading them 1 s and 4 s.
    assert (share.low, share.high, share.count) == (0.5, 1.0, 2)
    assert (read_share.low, read_share.high) == (0.5, 0.5)
    assert found["figures"]["overwrite_share"].high == 0.5


def test_the_first_save_is_apart_but_for_its_memory() -> None:
    found = summary.row(THOUSAND, OURS, [result("df", 0, 1.0)])
    assert found["figures"]["stall_seconds"].median == 0.5
    assert found["figures"]["first_stall_seconds"].median == 9.0
    assert found["figures"]["peak_per_byte"].median == 4.0
    assert found["figures"]["written_per_byte"].median == 2.0
    assert found["figures"]["cpu_seconds_per_gb"].median == pytest.approx(1e6)
    assert (found["stall_worst_seconds"], found["stall_worst_is"]) == (0.5, "max of 2")
    assert "write_share" not in found["figures"]


def test_the_best_peer_is_compared_round_by_round() -> None:
    nosync, slow = SAVERS["torch-save"], SYNCED
    results = [result("df", 0, 1.0), result("df", 1, 2.0)]
    results += [result(nosync.name, 0, 2.0), result(nosync.name, 1, 6.0)]
    results += [result(slow.name, 0, 8.0), result(slow.name, 1, 8.0)]
    mine, *others = (summary.row(THOUSAND, one, results) for one in (OURS, nosync, slow))
    best = summary.best_peer(mine, others, "durable_seconds")
    assert best is not None
    assert (best.peer, best.times.low, best.times.high) == (nosync.title, 2.0, 3.0)
    durable = summary.best_peer(mine, others, "durable_seconds", durable=True)
    assert durable is not None
    assert (durable.peer, durable.times.low, durable.times.high) == (slow.title, 4.0, 8.0)
    faster = summary.best_peer(mine, others, "durable_rate")
    assert faster is not None
    assert (faster.times.low, faster.times.high) == (2.0, 3.0)


def test_values_differ_between_tensors_and_versions_and_one_bit_is_seen() -> None:
    values, layout = Values(SEED), tiny()
    arrays = {one.name: numpy.empty(one.shape, one.dtype) for one in layout.tensors}
    for index, spec in enumerate(layout.tensors):
        values.fill(arrays[spec.name], index, 3)
    assert wrong(values, layout, arrays, 3) == []
    assert len(wrong(values, layout, arrays, 2)) == len(layout.tensors)
    assert len(wrong(Values(SEED + 1), layout, arrays, 3)) == 4  # a counter knows no seed
    arrays["hidden.weight"].view(numpy.uint32)[255, 299] ^= 1
    assert wrong(values, layout, arrays, 3) == ["hidden.weight"]
    del arrays["step"]
    assert wrong(values, layout, arrays, 3) == ["hidden.weight", "step"]


def test_a_tensor_longer_than_the_pool_is_filled_to_its_end() -> None:
    values, array = Values(SEED), numpy.full(9 << 20, numpy.nan, numpy.float32)
    values.fill(array, 1, 1)
    assert values.holds(array, 1, 1)
    assert not numpy.isnan(array).any()
    array[-1] += 1
    assert not values.holds(array, 1, 1)


def test_layouts_have_the_sizes_that_they_claim(tmp_path: Path) -> None:
    resnet = LAYOUTS["resnet152"]()
    assert resnet.nbytes / 1e6 == pytest.approx(722.9, abs=0.1)
    assert len(resnet.tensors) > 2000
    assert LAYOUTS["nt3"]().partial.nbytes < 16e6
    small = small_tensors(10_000)
    assert {spec.nbytes for spec in small.tensors} == {1024, 2048, 3072, 4096}
    assert equal_tensors("", "", 100, 10**7).nbytes == 10**7
    resnet.write(tmp_path / "layout")
    assert read(tmp_path / "layout") == resnet
    assert [name for name, _ in named("", {"a": {"b": torch.ones(1)}, "c": 1})] == ["a.b"]


def test_a_line_and_a_knee() -> None:
    straight = growth.fit([(1, 3.0), (10, 21.0), (100, 201.0)])
    assert straight is not None
    assert straight.base == pytest.approx(1)
    assert straight.slope == pytest.approx(2)
    assert straight.knee is None
    bent = growth.fit([(1, 1.0), (10, 1.0), (100, 1.0), (1000, 5.0), (10_000, 20.0)])
    assert bent is not None
    assert bent.knee == 1000
    assert growth.fit([(1, 1.0), (2, 2.0)]) is None


def test_errors_keep_their_first_and_last_line_and_no_folders() -> None:
    error = 'OSError: answer\n  File "/a/b-c/d.py", line 3\nOSError: [Errno 22] /x/y/z.pt'
    assert gist(error) == "OSError: answer … OSError: [Errno 22] z.pt"


def test_what_the_saver_does_not_sync_the_harness_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(child, "sync_all", synced.append)
    tiny().write(tmp_path / "layout.json")
    for one in (SAVERS["torch-save"], SYNCED):
        place = tmp_path / one.name
        place.mkdir()
        asked = jobs.request(one, "save", tmp_path / "layout.json", place, SEED, saves=2)
        assert "error" not in answered(one, asked, 0.0)
    place = tmp_path / "torch-save"
    assert synced == [place / f"step-{step}" for step in range(3)]  # two that are timed
    assert sorted(path.name for path in place.iterdir()) == ["step-2"]


def test_plots_escape_their_labels_and_show_failures() -> None:
    found = plots.bars([plots.Bar("a<b", 1.0, 0.5, 2.0), plots.Bar("c", None, note="failed")], "s")
    assert "a&lt;b" in found
    assert "> failed</text>" in found
    assert plots.curves([plots.Series("none", [])], "", "") == ""
    assert [plots.number(one) for one in (0, 0.5, 1234, 2e9)] == ["0", "0.5", "1,234", "2e9"]
