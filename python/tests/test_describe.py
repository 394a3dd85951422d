"""Texts about a run for people: reprs, tables, lines in the log, bars."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dcp_kit import load as dcp_load
from dcp_kit import save as dcp_save
from testkit import attempt_of, data_file, data_start, flip, save

import deepfreeze as df
from deepfreeze.base import progress
from deepfreeze.base.progress import Progress, TqdmProgress, is_watched, watched
from deepfreeze.dcp import AsyncStager, StorageReader, StorageWriter

STATE = {"w": torch.ones(300_000), "n": 1}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error is one, no tqdm is installed, and bars are drawn at once."""
    stream = Terminal()
    # Not sys.stderr itself, which pytest sets anew before the test.
    fake = types.SimpleNamespace(stderr=stream, modules=sys.modules)
    monkeypatch.setattr(progress, "sys", fake)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_REDRAW_SECONDS", 0.001)
    return stream


@pytest.fixture
def slow_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read ends only once its bar has been drawn."""
    drawn = threading.Event()
    draw = Progress._draw

    def tell(self: Progress, done: int, seconds: float) -> None:
        draw(self, done, seconds)
        drawn.set()

    class Ended(threading.Event):
        def set(self) -> None:
            assert drawn.wait(60)
            drawn.clear()
            super().set()

    monkeypatch.setattr(Progress, "_draw", tell)
    monkeypatch.setattr(progress, "Event", Ended)


# Reprs


def public_objects(tmp_path: Path) -> Iterator[object]:
    with df.Checkpointer(tmp_path / "run", keep=df.keep(last=3)) as ckpt:
        yield ckpt
        yield save(ckpt, 1, STATE, metrics={"loss": 0.5})
        yield ckpt.policy
        ckpt.restore({"w": torch.zeros(300_000), "n": 0})
        yield from (ckpt.last_restore, ckpt.checkpoints(), ckpt.checkpoints()[0])
        yield ckpt.in_flight()
    flip(data_file(ckpt.path, 1), data_start(data_file(ckpt.path, 1)) + 9)
    yield from ckpt.verify()
    yield from (df.every(steps=4), df.every(overhead=0.02), df.keep(best=("loss", "min")))
    yield from (df.RNG(own=torch.Generator()), df.per_rank(object()))
    yield df.DirectoryRanks(tmp_path / "ranks", rank=0, world_size=1)
    yield from (StorageWriter(tmp_path / "dcp"), StorageReader(tmp_path / "dcp"), StorageWriter())
    with df.Checkpointer(tmp_path / "budget", every=df.every(mtbf=3600.0)) as measured:
        yield from (measured.policy, measured)
    stager = AsyncStager()
    yield stager
    stager.close()


def test_nothing_public_prints_as_an_address(tmp_path: Path) -> None:
    for each in public_objects(tmp_path):
        assert " object at 0x" not in repr(each), type(each)
    classes = [getattr(df, name) for name in df.__all__ if isinstance(getattr(df, name), type)]
    plain = [cls for cls in classes if cls.__repr__ is object.__repr__]
    assert plain == []


def test_a_checkpointer_says_what_it_does(run: Path) -> None:
    ckpt = df.Checkpointer(run, every=df.every(steps=4), keep=df.keep(last=3, best=("loss", "min")))
    text = f"<Checkpointer {run}; saves every 4 steps; keeps the last 3, the best 1 by min loss>"
    assert repr(ckpt) == text
    save(ckpt, 4, STATE, metrics={"loss": 1.0})
    ckpt.restore({"w": torch.zeros(300_000), "n": 0})
    assert "; restored step 4>" in repr(ckpt)
    ckpt.close()
    assert repr(ckpt).endswith("; closed>")


def test_one_that_could_not_be_opened_has_a_repr(run: Path) -> None:
    run.write_text("no directory")
    unopened = df.Checkpointer.__new__(df.Checkpointer)
    with pytest.raises(df.CheckpointError):
        unopened.__init__(run)  # type: ignore[misc]
    assert repr(unopened).startswith("<Checkpointer ")


def test_a_handle_says_how_far_its_save_is(ckpt: df.Checkpointer) -> None:
    assert repr(save(ckpt, 1, STATE)) == "<SaveHandle of step 1: durable>"
    handle = df.SaveHandle(2, None)
    assert repr(handle) == "<SaveHandle of step 2: in flight, not captured yet>"
    handle.captured.set_result(2)
    assert repr(handle) == "<SaveHandle of step 2: captured, not durable yet>"
    handle.fail(df.NoSpaceError("write x: full"))
    assert repr(handle) == "<SaveHandle of step 2: failed: NoSpaceError: write x: full>"


def test_a_checkpoint_and_a_fault(ckpt: df.Checkpointer) -> None:
    save(ckpt, 3, STATE, metrics={"loss": 0.25})
    info = ckpt.checkpoints()[0]
    text = repr(info)
    assert text.startswith("CheckpointInfo(step=3, generation=1, saved='20")
    assert text.endswith(f"Z', bytes={info.bytes}, metrics={{'loss': 0.25}})")
    (attempt_of(ckpt.path, 3) / "manifest.json").write_text("{")
    assert ", fault='" in repr(ckpt.checkpoints()[0])


def test_checkpoints_are_a_table(ckpt: df.Checkpointer) -> None:
    assert str(ckpt.checkpoints()) == "no checkpoint"
    save(ckpt, 3, STATE, metrics={"loss": 0.25, "<b>": 1.0})
    save(ckpt, 4, STATE, metrics={"loss": 12.5})
    head, newest, oldest = str(ckpt.checkpoints()).splitlines()
    assert head.split() == ["step", "saved", "(UTC)", "size", "<b>", "loss"]
    assert (newest.split()[0], newest.split()[-1]) == ("4", "12.5")
    assert oldest.split()[-2:] == ["1", "0.25"]
    for shown in (ckpt.checkpoints()._repr_html_(), ckpt._repr_html_()):
        assert "<td>12.5</td>" in shown
        assert "<b>" not in shown
        assert shown.count("<tr>") == 3
    assert isinstance(ckpt.checkpoints(), list)


def test_a_run_that_can_not_be_read_is_shown_without_its_table(ckpt: df.Checkpointer) -> None:
    (ckpt.path / "deepfreeze.json").write_text("{")
    assert "<table" not in ckpt._repr_html_()


# Lines at INFO


def info_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.INFO]


def test_one_line_for_each_save_and_each_restore(
    ckpt: df.Checkpointer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "deepfreeze"):
        save(ckpt, 7, STATE)
        (line,) = info_lines(caplog)
        assert line.startswith(f"saved step 7 to {ckpt.path}: 1.2 MB durable after ")
        assert line.endswith(" ms")
        live = {"w": torch.zeros(300_000), "n": 0}
        caplog.clear()
        ckpt.restore(live)
        ckpt.restore(live, verify=False)
        checked, unchecked = info_lines(caplog)
    where = f"restored step 7 from {attempt_of(ckpt.path, 7)}: 1.2 MB in "
    assert checked.startswith(where)
    assert checked.endswith("/s), every block verified")
    assert unchecked.endswith("/s), not verified, as verify=False asked")
    report = ckpt.last_restore
    assert report is not None
    assert (report.bytes, report.path) == (1_200_000, str(attempt_of(ckpt.path, 7)))
    assert report.seconds > 0


def test_no_such_line_for_a_save_that_failed(
    ckpt: df.Checkpointer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(ckpt, 1, STATE)
    with df.Checkpointer(ckpt.path) as other, caplog.at_level(logging.INFO, "deepfreeze"):
        save(other, 2, STATE)
        caplog.clear()
        handle = ckpt.save(3, STATE)
        assert handle is not None
        with pytest.raises(df.FencedError):
            handle.wait()
        assert info_lines(caplog) == []


def test_of_several_ranks_the_first_tells(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(rank: int) -> None:
        ranks = df.DirectoryRanks(run.with_name("ranks"), rank=rank, world_size=2)
        state = {"w": np.ones(1000), "own": df.per_rank(np.ones(10))}
        with df.Checkpointer(run, ranks=ranks) as ckpt:
            save(ckpt, 1, state)
            ckpt.restore(state)

    with caplog.at_level(logging.INFO, "deepfreeze"), ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (0, 1)))
    assert [line.split()[0] for line in info_lines(caplog)] == ["saved", "restored"]
    assert "(rank 0's part)" in info_lines(caplog)[0]


# Bars


def run_with_one_step(run: Path) -> df.Checkpointer:
    ckpt = df.Checkpointer(run, profile="latency")
    save(ckpt, 5, STATE)
    return ckpt


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("restore step 5", lambda ckpt: ckpt.restore({"w": torch.zeros(300_000), "n": 0})),
        ("load step 5", lambda ckpt: ckpt.load()),
        ("verify step 5", lambda ckpt: ckpt.verify()),
    ],
)
def test_a_long_read_is_shown_on_a_terminal_and_wiped(
    run: Path, terminal: Terminal, slow_reads: None, name: str,
    work: Callable[[df.Checkpointer], object],
) -> None:  # fmt: skip
    with run_with_one_step(run) as ckpt:
        work(ckpt)
    text = terminal.getvalue()
    assert f"\r\033[K{name} [" in text
    assert " of 1.2 MB  " in text
    assert text.endswith("\r\033[K")


def test_so_is_a_load_of_dcp(tmp_path: Path, terminal: Terminal, slow_reads: None) -> None:
    dcp_save({"w": torch.ones(300_000)}, tmp_path / "dcp")
    dcp_load({"w": torch.zeros(300_000)}, tmp_path / "dcp")
    assert "load step 1 [" in terminal.getvalue()


def test_nothing_is_shown_nor_started_where_nobody_looks(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "Thread", None)
    with watched("load", 10) as counter:
        assert counter == ()
    assert stream.getvalue() == ""


def test_nothing_is_shown_by_other_ranks(terminal: Terminal) -> None:
    with watched(None, 10) as counter:
        assert counter == ()


def test_nothing_is_shown_of_what_ends_soon(
    run: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 60.0)
    with run_with_one_step(run) as ckpt:
        ckpt.load()
    assert terminal.getvalue() == ""


def test_a_notebook_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_watched(io.StringIO())
    assert not is_watched(None)
    shell = types.SimpleNamespace(kernel=object())
    fake: Any = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", fake)
    assert is_watched(io.StringIO())
    closed = io.StringIO()
    closed.close()
    assert not is_watched(closed)


class Bar:
    """As tqdm's."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.n = 0
        self.start_t = 100.0
        self.closed = False

    def update(self, count: int) -> None:
        self.n += count

    def close(self) -> None:
        self.closed = True


def test_with_tqdm_its_bar_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    auto: Any = types.ModuleType("tqdm.auto")
    made: list[Bar] = []
    auto.tqdm = lambda **options: made.append(Bar(**options)) or made[-1]
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    now = [0.0]
    with TqdmProgress("restore step 1", 100, Terminal(), lambda: now[0]) as bar:
        for seconds, done in ((0.5, 10), (2.0, 40), (3.0, 200)):
            now[0] = seconds
            bar.update(done)
            assert not made or not made[0].closed
    assert [each.n for each in made] == [100]
    assert made[0].options["total"] == 100
    assert made[0].start_t == 98.0
    assert made[0].closed
    assert type(progress._progress_of("x", 1)) is TqdmProgress


def test_a_stream_that_fails_harms_no_restore(
    run: Path, terminal: Terminal, slow_reads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = Progress._draw

    def fails(self: Progress, done: int, seconds: float) -> None:
        drawn(self, done, seconds)
        raise OSError("no terminal any more")

    monkeypatch.setattr(Progress, "_draw", fails)
    with run_with_one_step(run) as ckpt:
        live = {"w": torch.zeros(300_000), "n": 0}
        assert ckpt.restore(live) == 5
    assert live["w"].sum() == 300_000


def test_a_forked_child_may_print_its_parents(ckpt: df.Checkpointer) -> None:
    handle = save(ckpt, 1, STATE)
    child = os.fork()
    if child == 0:
        text = repr(ckpt) + repr(handle) + ckpt._repr_html_()
        os._exit(0 if "Checkpointer" in text else 1)
    assert os.waitpid(child, 0)[1] == 0
