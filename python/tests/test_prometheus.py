"""The file for Prometheus' node exporter, read by a parser as strict as its own."""

import logging
import math
import os
import re
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import deepfreeze as df
from deepfreeze.metrics.counters import SaveCounters
from deepfreeze.metrics.exposition import BUCKETS, Histogram
from deepfreeze.metrics.textfile import Textfile
from deepfreeze.saving.attached import Window

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|Inf)|NaN")
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
UNITS = ("_total", "_seconds", "_bytes", "_step", "_checkpoints")

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Exposition:
    """A text in Prometheus' format 0.0.4; AssertionError for any other text."""

    def __init__(self, text: str) -> None:
        assert text.endswith("\n")
        self.kinds: dict[str, str] = {}
        self.helps: dict[str, str] = {}
        self.samples: Samples = {}
        self._family = ""  # all lines of one stand together
        for line in text[:-1].split("\n"):
            self._take(line)
        assert set(self.kinds) == set(self.helps)
        for name, kind in self.kinds.items():
            self._check(name, kind)

    def value(self, name: str, **labels: str) -> float:
        """The value of the one sample that has these labels among its own."""
        (found,) = (
            value
            for (each, own), value in self.samples.items()
            if each == f"deepfreeze_{name}" and labels.items() <= dict(own).items()
        )
        return found

    def _take(self, line: str) -> None:
        if line.startswith("# "):
            kind, name, rest = line[2:].split(" ", 2)
            assert NAME.fullmatch(name)
            table = {"HELP": self.helps, "TYPE": self.kinds}[kind]
            assert name not in table, f"{kind} of {name} twice"
            assert kind == "HELP" or rest in ("counter", "gauge", "histogram")
            assert not re.search(r"\\(?![\\n])", rest)
            assert name not in {each for each, _ in self.samples}
            table[name], self._family = rest, name
            return
        match = re.fullmatch(r"(\S+?)\{(.*)\} (\S+)", line)
        assert match, line
        name, labels, value = match.groups()
        assert NAME.fullmatch(name)
        assert NUMBER.fullmatch(value), line
        assert name in self._names(self._family), f"{line} in {self._family}"
        key = (name, tuple(self._labels(labels)))
        assert key not in self.samples, f"{line} twice"
        self.samples[key] = float(value.replace("Inf", "inf"))

    def _names(self, family: str) -> set[str]:
        if self.kinds[family] == "histogram":
            return {f"{family}_bucket", f"{family}_sum", f"{family}_count"}
        return {family}

    def _labels(self, text: str) -> list[tuple[str, str]]:
        found, at = [], 0
        while at < len(text):
            match = LABEL.match(text, at)
            assert match, text
            value = re.sub(r"\\.", lambda one: ESCAPES[one.group()], match[2])
            found.append((match[1], value))
            at = match.end()
        assert len({name for name, _ in found}) == len(found)
        return found

    def _check(self, name: str, kind: str) -> None:
        assert name.startswith("deepfreeze_")
        assert name.endswith(UNITS)
        assert name.endswith("_total") == (kind == "counter")
        assert any(each.startswith(name) for each, _ in self.samples)
        if kind == "histogram":
            self._check_buckets(name)

    def _check_buckets(self, name: str) -> None:
        buckets = [
            (float(dict(labels)["le"].replace("Inf", "inf")), value)
            for (each, labels), value in self.samples.items()
            if each == f"{name}_bucket"
        ]
        assert buckets == sorted(buckets)
        assert [count for _, count in buckets] == sorted(count for _, count in buckets)
        assert buckets[-1] == (math.inf, self.value(f"{name.removeprefix('deepfreeze_')}_count"))


def read(path: Path) -> Exposition:
    return Exposition(path.read_bytes().decode())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "collected").mkdir()
    return tmp_path / "collected" / "nt3.prom"


STATE = {"x": torch.ones(1000)}


def test_what_became_of_saves_is_counted(run: Path, file: Path) -> None:
    with df.Checkpointer(run, prometheus_textfile=file) as ckpt:
        handles = [ckpt.save(step, STATE) for step in (3, 8)]
        ckpt.wait()
        found = read(file)
        statuses = [handle.status() for handle in handles if handle]
    assert found.value("saves_total", run=str(run), rank="0") == 2
    assert found.value("saves_failed_total") == found.value("saves_skipped_total") == 0
    assert found.value("written_bytes_total") == sum(each.bytes_written for each in statuses) > 8000
    assert found.value("copied_bytes_total") == sum(each.bytes_copied for each in statuses) == 8000
    for name in ("stall", "fence", "durable"):
        seconds = [getattr(each, f"{name}_seconds") for each in statuses]
        assert found.value(f"save_{name}_seconds_sum") == pytest.approx(sum(seconds))
        assert found.value(f"save_{name}_seconds_count") == 2
        below = sum(each <= 0.003 for each in seconds)
        assert found.value(f"save_{name}_seconds_bucket", le="0.003") == below
    assert found.value("last_durable_step") == 8
    assert found.value("last_durable_bytes") == statuses[1].bytes
    age = file.stat().st_mtime - found.value("last_durable_timestamp_seconds")
    assert abs(age) < 60


def test_a_failed_save_is_counted_though_it_never_began(
    run: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = []
    write = Textfile._write
    monkeypatch.setattr(
        Textfile,
        "_write",
        lambda self, text: (writers.append(threading.current_thread()), write(self, text)),
    )
    with df.Checkpointer(run, prometheus_textfile=file) as ckpt:
        engine = ckpt._engine

        class Full:
            def __getattr__(self, name: str) -> Any:
                return getattr(engine, name)

            def save(self, *arguments: Any, **more: Any) -> None:
                raise df.CheckpointError("no memory", code="no_memory")

        ckpt._engine = Full()  # type: ignore[assignment]
        handle = ckpt.save(1, STATE)
        assert handle is not None
        assert ckpt.failed_saves == 1  # at once
        assert ckpt.in_flight() == []
        ckpt.wait()
        with pytest.raises(df.CheckpointError, match="no memory"):
            handle.wait()
        assert ckpt.failed_saves == 1
        ckpt._engine = engine
    found = read(file)
    assert found.value("saves_total") == found.value("saves_failed_total") == 1
    assert found.value("saves_torn_total") == 0
    assert found.value("save_stall_seconds_count") == found.value("save_durable_seconds_count") == 0
    assert found.value("last_durable_timestamp_seconds") == 0
    assert [each.name for each in writers] == ["df-complete"]


def test_a_torn_save_is_counted(run: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = threading.Event()
    finish = Window.finish
    monkeypatch.setattr(Window, "finish", lambda self: changed.wait(60) and finish(self))
    weight = torch.nn.Linear(1024, 1024)
    with df.Checkpointer(run, prometheus_textfile=file, profile="latency") as ckpt:
        ckpt.attach(weight)
        handle = ckpt.save(1, {"net": weight})
        assert handle is not None
        with torch.no_grad():
            weight.weight.add_(1)
        changed.set()
        with pytest.raises(df.TornCaptureError):
            handle.wait()
        ckpt.wait()
        found = read(file)
    assert found.value("saves_torn_total") == found.value("saves_failed_total") == 1
    assert found.value("save_stall_seconds_count") == 1
    assert found.value("save_durable_seconds_count") == 0


def test_a_save_left_out_is_counted(run: Path, file: Path) -> None:
    big = {"x": torch.ones(1 << 24)}
    with df.Checkpointer(run, prometheus_textfile=file, on_busy="skip") as ckpt:
        skipped = 0
        for step in range(1, 100):
            skipped += ckpt.save(step, big) is None
            if skipped == 3:
                break
        ckpt.wait()
        assert ckpt.save(100, STATE) is not None
        ckpt.wait()
        assert read(file).value("saves_skipped_total") == skipped > 0


def test_no_reader_sees_half_a_file_or_a_name_more(
    run: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the moment of the rename the old file is whole, and the new one is no .prom."""
    seen = []

    def replace(part: Path, target: Path) -> None:
        if target.exists():
            seen.append(read(target).value("saves_total"))
        assert list(target.parent.glob("*.prom")) == ([target] if target.exists() else [])
        assert part.parent == target.parent
        os.replace(part, target)

    monkeypatch.setattr(Path, "replace", replace)
    with df.Checkpointer(run, prometheus_textfile=file) as ckpt:
        for step in range(1, 4):
            ckpt.save(step, STATE)
    assert seen == [1, 2]
    assert os.listdir(file.parent) == [file.name]


def test_a_save_that_is_durable_is_no_more_in_flight_though_its_file_is_not_written(
    run: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = threading.Event()
    monkeypatch.setattr(Textfile, "_write", lambda self, text: seen.wait(60))
    with df.Checkpointer(run, prometheus_textfile=file) as ckpt:
        handle = ckpt.save(1, STATE)
        assert handle is not None
        handle.wait()
        assert ckpt.in_flight() == []
        seen.set()


def test_a_program_may_change_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with df.Checkpointer("nt3", prometheus_textfile="nt3.prom") as ckpt:
        monkeypatch.chdir(tmp_path / "elsewhere")
        ckpt.save(1, STATE)
    assert read(tmp_path / "nt3.prom").value("saves_total", run=str(tmp_path / "nt3")) == 1


def test_the_exporter_may_read_it(run: Path, file: Path) -> None:
    before = os.umask(0o022)
    try:
        with df.Checkpointer(run, prometheus_textfile=str(file)) as ckpt:
            ckpt.save(1, STATE)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_file_that_can_not_be_written_is_said_once_and_harms_nothing(
    run: Path, tmp_path: Path, caplog: Any
) -> None:
    missing = tmp_path / "missing" / "nt3.prom"
    with df.Checkpointer(run, prometheus_textfile=missing) as ckpt:
        for step in (1, 2):
            ckpt.save(step, STATE)
            ckpt.wait()
        assert [each.levelno for each in caplog.records] == [logging.WARNING]
        assert str(missing) in caplog.text
        missing.parent.mkdir()
        ckpt.save(3, STATE)
        ckpt.wait()
        assert read(missing).value("saves_total") == 3
        assert ckpt.steps() == [1, 2, 3]
        assert ckpt.failed_saves == 0


def test_nothing_is_left_where_the_file_can_not_be_renamed(run: Path, file: Path) -> None:
    file.mkdir()
    with df.Checkpointer(run, prometheus_textfile=file) as ckpt:
        ckpt.save(1, STATE)
    assert os.listdir(file.parent) == [file.name]


def test_a_name_that_nobody_would_read_is_refused_before_the_run_is_claimed(run: Path) -> None:
    with pytest.raises(ValueError, match=r"nt3\.txt does not end in \.prom"):
        df.Checkpointer(run, prometheus_textfile="nt3.txt")
    assert not run.exists()


@pytest.mark.parametrize("run", ['a"b', "a\\nb", "a\nb", "\\", "a,b={}", "ünï"])
def test_labels_are_escaped(run: str) -> None:
    found = Exposition(SaveCounters(run).text())
    assert found.value("saves_total", run=run) == 0


def test_a_path_that_is_no_text_does_not_cost_the_file(tmp_path: Path, file: Path) -> None:
    run = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    Textfile(file, run)._write(SaveCounters(run).text())
    assert read(file).value("saves_total", run=f"{tmp_path}/?") == 0


def test_buckets_are_cumulative_and_bounds_belong_to_them() -> None:
    histogram = Histogram()
    for seconds in (0.0, 0.001, 0.0011, 300.0, 300.1):
        histogram.observe(seconds)
    *buckets, total, count = histogram.samples()
    assert [each.value for each in buckets] == [2] + [3] * 10 + [4, 5]
    assert [each.label for each in buckets[-2:]] == [("le", "300"), ("le", "+Inf")]
    assert len(buckets) == len(BUCKETS) + 1
    assert (total.value, count.value) == (pytest.approx(600.1021), 5)


def test_how_far_each_tier_is_stands_in_the_file(tmp_path: Path) -> None:
    file, state = tmp_path / "run.prom", {"weights": torch.ones(1000)}
    near, slow = tmp_path / "near", tmp_path / "slow"
    # The second one never has anything.
    tiers = [df.tier(near, close_seconds=0), df.tier(slow, rate=1, close_seconds=0)]
    with df.Checkpointer(tmp_path / "run", tiers=tiers, prometheus_textfile=file) as ckpt:
        handle = ckpt.save(1, state)
        assert handle is not None
        handle.wait("local", 60)
        deadline = time.monotonic() + 60
        # Although the save is durable nowhere yet.
        while not file.exists() or ckpt.tier_status()[0].committed == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        second = ckpt.save(2, state)
        assert second is not None
        second.wait("local", 60)
        found = Exposition(file.read_text())
        while found.value("tier_committed_total", tier=str(near)) == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
            found = Exposition(file.read_text())
        assert found.value("tier_waiting_checkpoints", tier=str(slow)) >= 1
        assert found.value("tier_committed_total", tier=str(slow)) == 0
        assert found.value("tier_copied_bytes_total", tier=str(near)) > 4000
        copied = found.value("tier_copied_bytes_total", tier=str(near))
        assert found.value("tier_stored_bytes_total", tier=str(near)) == copied
        assert found.value("tier_failures_total", tier=str(near)) == 0
        assert found.value("tier_left_out_total", tier=str(near)) == 0


def test_without_tiers_the_file_says_nothing_of_them() -> None:
    assert "tier" not in SaveCounters("/run").text()
