"""A path means the directory that it meant when it was given, whatever bytes it is made of."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp_kit import quiet
from testkit import data_file, data_start, flip, save

import deepfreeze as df
from deepfreeze import _core
from deepfreeze.base.arguments import absolute_options
from deepfreeze.dcp import StorageReader, StorageWriter
from deepfreeze.importing.command import _run

NOT_UTF8 = os.fsdecode(b"caf\xe9")


@pytest.fixture
def leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Begins in one directory; the call goes to another, in which there is another "run"."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(there)
    with df.Checkpointer("run") as ckpt:
        save(ckpt, 9, {"n": 9})
    monkeypatch.chdir(here)
    return lambda: monkeypatch.chdir(there)


def test_every_method_means_the_first_directory(tmp_path: Path, leave: Callable[[], None]) -> None:
    with df.Checkpointer("run") as ckpt:
        save(ckpt, 1, {"n": 1})
        leave()
        state = {"n": 0}
        assert ckpt.path == tmp_path / "here" / "run"
        assert (ckpt.latest(), ckpt.steps(), ckpt.load(), ckpt.verify()) == (1, [1], {"n": 1}, [])
        assert [info.step for info in ckpt.checkpoints()] == [1]
        assert (ckpt.restore(state), state) == (1, {"n": 1})
        save(ckpt, 2, {"n": 2})
        assert ckpt.steps() == [1, 2]
    assert not list(Path("run").glob("step-000000000002-*"))


def test_what_is_found_is_found_again(leave: Callable[[], None]) -> None:
    with df.Checkpointer("run") as ckpt:
        save(ckpt, 1, {"n": torch.ones(3)})
    (info,) = _core.list_checkpoints("run")
    leave()
    assert _core.verify_checkpoint(info) == []
    assert os.path.isabs(info.path)


def test_a_parent_and_its_record(leave: Callable[[], None], tmp_path: Path) -> None:
    with df.Checkpointer("run") as ckpt:
        save(ckpt, 1, {"n": 1})
    with df.Checkpointer("branch", parent=("run", 1)) as ckpt:
        leave()
        state = {"n": 0}
        assert (ckpt.restore(state), state) == (1, {"n": 1})
        save(ckpt, 2, state)
    record = (tmp_path / "here" / "branch" / "deepfreeze.json").read_text()
    assert str(tmp_path / "here" / "run") in record


def test_options_of_what_is_opened_later(leave: Callable[[], None], tmp_path: Path) -> None:
    given = {"parent": ("run", 1), "prometheus_textfile": "nt3.prom", "audit_saves": 3}
    made = absolute_options(given)
    leave()
    here = tmp_path / "here"
    assert made == {
        "parent": (str(here / "run"), 1), "prometheus_textfile": here / "nt3.prom",
        "audit_saves": 3,
    }  # fmt: skip
    assert absolute_options(made) == made
    assert absolute_options({"parent": None}) == {"parent": None}


def test_the_directory_of_ranks(leave: Callable[[], None]) -> None:
    with ThreadPoolExecutor(2) as pool:
        ranks = list(pool.map(lambda rank: df.DirectoryRanks("r", rank=rank, world_size=2), (0, 1)))
        leave()
        gathered = list(pool.map(lambda one: one.gather(b"x"), ranks))
    assert gathered == [[b"x", b"x"], None]


def test_writers_and_readers_of_dcp(leave: Callable[[], None], tmp_path: Path) -> None:
    writer, reader = StorageWriter("dcp"), StorageReader("dcp")
    leave()
    with quiet(), writer:
        dcp.save({"w": torch.ones(3)}, storage_writer=writer)
        state = {"w": torch.zeros(3)}
        dcp.load(state, storage_reader=reader)
    assert state["w"].tolist() == [1, 1, 1]
    assert writer.checkpoint_id == reader.checkpoint_id == str(tmp_path / "here" / "dcp")


def test_a_relative_id_of_dcp(leave: Callable[[], None], tmp_path: Path) -> None:
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

    writer, reader = FsspecWriter("deepfreeze://id"), FsspecReader("deepfreeze://id")
    leave()
    with quiet():
        dcp.save({"w": torch.ones(3)}, storage_writer=writer)
        state = {"w": torch.zeros(3)}
        dcp.load(state, storage_reader=reader)
    assert state["w"].tolist() == [1, 1, 1]
    assert (tmp_path / "here" / "id" / "metadata").is_dir()


def test_the_destination_of_an_import(leave: Callable[[], None], tmp_path: Path) -> None:
    run = _run("run")
    leave()
    assert run == tmp_path / "here" / "run"


def test_a_link_stays_a_link_and_what_is_above_it_is_above_where_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk" / "a").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "a")
    monkeypatch.chdir(tmp_path)
    with df.Checkpointer("link/run") as ckpt:
        assert str(ckpt.path) == f"{tmp_path}/link/run"
        save(ckpt, 1, {"n": 1})
    with df.Checkpointer("link/../run") as ckpt:
        save(ckpt, 2, {"n": 2})
        assert ckpt.steps() == [2]
    assert (tmp_path / "disk" / "run").is_dir()
    writer = StorageWriter("link/../dcp")
    with quiet(), writer:
        dcp.save({"w": torch.ones(3)}, storage_writer=writer)
    assert (tmp_path / "disk" / "dcp").is_dir()


def test_a_tilde_is_a_name_as_for_pathlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with df.Checkpointer("~/run") as ckpt:
        assert ckpt.path == tmp_path / "~" / "run"


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_can_be_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"path: .* is no path"):
        df.Checkpointer(path)


def test_bytes_are_refused_with_a_way_out() -> None:
    path: Any = b"run"
    with pytest.raises(TypeError, match=r"os\.fsdecode"):
        df.Checkpointer(path)


def test_a_path_that_is_no_utf8_is_a_run_like_any_other(tmp_path: Path) -> None:
    run = tmp_path / NOT_UTF8
    with df.Checkpointer(run, prometheus_textfile=run.with_suffix(".prom")) as ckpt:
        save(ckpt, 1, {"w": torch.ones(3)}, metrics={"loss": 1.0})
        save(ckpt, 2, {"w": torch.ones(3)})
    with df.Checkpointer(run) as ckpt:
        state = {"w": torch.zeros(3)}
        assert ckpt.restore(state) == 2
        assert (ckpt.latest(), ckpt.steps(), ckpt.verify(1)) == (2, [1, 2], [])
        assert Path(ckpt.checkpoints()[0].path).parent == run
        assert str(ckpt.load()["w"].tolist()) == "[1.0, 1.0, 1.0]"


def test_errors_about_it_escape_its_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tmp_path / NOT_UTF8
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 1, {"w": torch.ones(30_000)})
        save(ckpt, 2, {"w": torch.ones(30_000)})
        (run / "step-9").mkdir()
        flip(data_file(run, 2), data_start(data_file(run, 2)) + 9)
        (fault,) = ckpt.verify(2)
        assert fault.tensors == ["w"]
        with caplog.at_level(logging.WARNING, "deepfreeze"):
            assert ckpt.restore({"w": torch.zeros(30_000)}) == 1
        assert ckpt.checkpoints()[0].fault == ""
    with pytest.raises(df.CheckpointError, match=r"caf\\xe9"):
        _core.list_checkpoints(str(run / "none"))


def test_a_parent_that_is_no_utf8_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"parent: .* is not UTF-8"):
        df.Checkpointer(tmp_path / "run", parent=(tmp_path / NOT_UTF8, 1))


def test_dcp_in_a_directory_that_is_no_utf8(tmp_path: Path) -> None:
    writer, reader = StorageWriter(tmp_path / NOT_UTF8), StorageReader(tmp_path / NOT_UTF8)
    state = {"w": torch.zeros(3)}
    with quiet(), writer:
        dcp.save({"w": torch.ones(3)}, storage_writer=writer)
        dcp.load(state, storage_reader=reader)
        url = f"deepfreeze://{tmp_path / NOT_UTF8}-ids"
        dcp.save({"w": torch.full((3,), 2.0)}, checkpoint_id=url)
        dcp.load(state, checkpoint_id=url)
    assert state["w"].tolist() == [2, 2, 2]


@pytest.mark.parametrize("more", [{"tags": {"of": NOT_UTF8}}, {"metrics": {NOT_UTF8: 1.0}}])
def test_tags_and_metrics_that_are_no_unicode_are_refused(
    ckpt: df.Checkpointer, more: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"caf.* is not Unicode"):
        ckpt.save(1, {"n": 1}, **more)
