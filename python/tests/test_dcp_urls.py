"""deepfreeze:// ids: DCP's own readers and writers over versions of its streams."""

import logging
import os
import pickle
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp_kit import assert_equal, cause_of, quiet, url
from testkit import attempt_of, data_file, data_start, flip
from torch.distributed.checkpoint import CheckpointException, FileSystemWriter
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader

import deepfreeze as df
from deepfreeze import _core
from deepfreeze.dcp import DeepFreezeFileSystem
from deepfreeze.dcp.metadata_names import streams_in
from deepfreeze.dcp.versions import _OPEN_MAX, _runs, forget

STREAM = "__0_0.distcp"


def state_of(value: int) -> dict[str, Any]:
    return {
        "w": torch.full((40, 30), float(value)),
        "deep": [{"b": torch.full((7,), value)}],
        "n": value,
    }


def save(value: int, folder: Path, **options: Any) -> None:
    with quiet():
        dcp.save(state_of(value), checkpoint_id=url(folder), **options)


def load(folder: Path, **options: Any) -> int:
    """Which of the states it is, whole."""
    found = state_of(-1)
    with quiet():
        dcp.load(found, storage_reader=FsspecReader(url(folder), **options))
    assert_equal(found, state_of(found["n"]))
    value: int = found["n"]
    return value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "id"


def versions(folder: Path, name: str = STREAM) -> list[int]:
    infos = _core.list_checkpoints(str(folder / "files" / name))
    return sorted(info.step for info in infos)


def save_without_commit(value: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes all streams, as if the process ended before the commit."""

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FileSystemWriter, "finish", stopped)
        with pytest.raises(CheckpointException):
            save(value, folder)


def test_the_program_need_not_import_anything() -> None:
    (entry,) = entry_points(group="fsspec.specs", name="deepfreeze")
    assert entry.load() is DeepFreezeFileSystem
    assert fsspec.get_filesystem_class("deepfreeze") is DeepFreezeFileSystem


def test_an_id_that_is_used_again_has_the_newest(folder: Path) -> None:
    for value in (1, 2, 3):
        save(value, folder)
        assert load(folder) == value


def test_what_was_written_and_not_committed_does_not_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(1, folder)
    save_without_commit(2, folder, monkeypatch)
    assert versions(folder) == [1, 2]
    assert load(folder) == 1
    save(3, folder)
    assert load(folder) == 3


def test_a_stream_of_a_save_that_failed_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(1, folder)

    class Failing(dcp.DefaultSavePlanner):
        def resolve_data(self, write_item: Any) -> Any:
            if write_item.index.fqn == "w":
                raise ZeroDivisionError("on purpose")
            return super().resolve_data(write_item)

    with pytest.raises(CheckpointException, match="on purpose"):
        save(2, folder, planner=Failing())
    assert versions(folder) == [1]
    assert load(folder) == 1


def test_a_flipped_bit_is_found_when_it_is_read(folder: Path) -> None:
    save(1, folder)
    save(2, folder)
    damaged = data_file(folder / "files" / STREAM, 2)
    flip(damaged, damaged.stat().st_size - 700)
    with pytest.raises(CheckpointException, match="FSSPEC_DEEPFREEZE_VERIFY=blocks") as raised:
        load(folder)
    assert isinstance(cause_of(raised.value), df.CorruptError)


def test_a_flipped_bit_makes_the_version_before_load_where_all_is_verified(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(1, folder)
    save(2, folder)
    damaged = data_file(folder / "files" / STREAM, 2)
    flip(damaged, data_start(damaged) + 99)
    with caplog.at_level(logging.WARNING):
        assert load(folder, verify="blocks") == 1
    assert "trying an older one" in caplog.text
    # As FSSPEC_DEEPFREEZE_VERIFY in the environment sets it.
    monkeypatch.setitem(fsspec.config.conf, "deepfreeze", {"verify": "blocks"})
    assert load(folder) == 1
    with pytest.raises(ValueError, match="verify 'all'"):
        DeepFreezeFileSystem(verify="all")


@pytest.mark.parametrize("what", ["header", "manifest", "gone", "metadata"])
def test_a_damaged_version_makes_the_one_before_load(
    folder: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    save(1, folder)
    save(2, folder)
    stream = folder / "files" / STREAM
    if what == "header":
        flip(data_file(stream, 2), 60)
    elif what == "manifest":
        flip(attempt_of(stream, 2) / "manifest.json", 30)
    elif what == "gone":
        attempt_of(stream, 2).rename(folder / "elsewhere")
    else:
        flip(attempt_of(folder / "metadata", 2) / "manifest.json", 30)
    with caplog.at_level(logging.WARNING):
        assert load(folder) == 1
    assert "trying an older one" in caplog.text
    save(3, folder)
    assert load(folder) == 3


def test_a_reader_stays_with_the_versions_that_it_has_begun_with(folder: Path) -> None:
    save(1, folder)
    reader = FsspecReader(url(folder))
    metadata = reader.read_metadata()
    save(2, folder)
    stream = reader.fs.fs.open(f"{url(folder)}/{STREAM}", "rb")
    opened = fsspec.open(f"{url(folder)}/{STREAM}", "rb").open()
    with stream, opened as newest:
        assert stream.read() != newest.read()
        assert metadata.state_dict_metadata == reader.read_metadata().state_dict_metadata
        newest.seek(0)
        assert reader.fs.fs.cat_file(f"{url(folder)}/{STREAM}") == newest.read()


def test_versions_that_nothing_refers_to_are_deleted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[tuple[str, int]] = []
    really = _core.delete_checkpoint

    def delete(info: _core.CheckpointInfo) -> None:
        deleted.append((Path(info.path).parent.name, info.step))
        really(info)

    monkeypatch.setattr(_core, "delete_checkpoint", delete)
    with fsspec.open(f"{url(folder)}/__9_0.distcp", "wb") as stream:
        stream.write(b"of a rank that there was once")
    save(1, folder)
    save(2, folder)
    assert deleted == [("__9_0.distcp", 1)]
    with fsspec.open(f"{url(folder)}/__9_0.distcp", "wb") as stream:
        stream.write(b"of a rank that writes just now")
    save(3, folder)
    assert deleted[1:] == [(STREAM, 1)]
    assert versions(folder, "__9_0.distcp") == [1]  # under the number of the one before it
    save_without_commit(4, folder, monkeypatch)
    assert versions(folder) == [2, 3, 4]
    save(5, folder)
    assert versions(folder) == [3, 4, 5]
    assert versions(folder, "__9_0.distcp") == []
    save(6, folder)
    assert versions(folder) == [5, 6]
    assert load(folder) == 6
    forget(folder)  # waits for the thread that deletes old metadata
    assert [info.step for info in _core.list_checkpoints(str(folder / "metadata"))] == [5, 4]


def test_what_can_not_be_deleted_is_a_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: _core.CheckpointInfo) -> None:
        raise df.CheckpointError("no")

    monkeypatch.setattr(_core, "delete_checkpoint", refused)
    with caplog.at_level(logging.WARNING):
        for value in (1, 2, 3):
            save(value, folder)
    assert "old versions stay: no" in caplog.text
    assert load(folder) == 3


@pytest.mark.parametrize("lack", ["was never written", "has 5 bytes, its metadata needs"])
def test_a_commit_needs_all_streams_that_it_names(folder: Path, lack: str) -> None:
    save(1, folder)
    fs = DeepFreezeFileSystem()
    metadata = fs.cat_file(f"{folder}/.metadata")
    other = folder.with_name("other")
    if "5 bytes" in lack:
        with fs.open(f"{other}/{STREAM}", "wb") as stream:
            stream.write(b"short")
    with fs.open(f"{other}/.metadata.tmp", "wb") as stream:
        stream.write(metadata)
    with pytest.raises(df.IncompleteError, match=lack):
        fs.mv(f"{other}/.metadata.tmp", f"{other}/.metadata")
    assert not fs.exists(f"{other}/.metadata")
    with pytest.raises(FileNotFoundError, match="this file system has not written it"):
        fs.mv(f"{other}/.metadata.tmp", f"{other}/.metadata")


def test_hostile_metadata_is_not_committed(folder: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(folder.with_name("ran")),)

    fs = DeepFreezeFileSystem()
    with fs.open(f"{folder}/.metadata.tmp", "wb") as stream:
        pickle.dump(Evil(), stream)
    with pytest.raises(df.CheckpointError):
        fs.mv(f"{folder}/.metadata.tmp", f"{folder}/.metadata")
    assert not folder.with_name("ran").exists()
    with pytest.raises(df.CorruptError, match="no Metadata"):
        streams_in(pickle.dumps({"a": 1}), folder)


def test_streams_of_any_size_and_way_of_reading(folder: Path) -> None:
    fs = DeepFreezeFileSystem()
    content = os.urandom((5 << 20) + 123)
    pieces = [content[:1], content[1:70000], content[70000:]]
    save(1, folder)
    with fs.open(f"{folder}/{STREAM}", "wb") as stream:
        assert os.fsync(stream.fileno()) is None
        for piece in pieces:
            stream.write(piece)
        assert stream.tell() == len(content)
    metadata = fs.cat_file(f"{folder}/.metadata")
    with fs.open(f"{folder}/.metadata.tmp", "wb") as stream:
        stream.write(metadata)
    fs.mv(f"{folder}/.metadata.tmp", f"{folder}/.metadata")
    with fs.open(f"{folder}/{STREAM}", "rb") as stream:
        assert stream.seek(-200, os.SEEK_END) == len(content) - 200
        assert stream.read() == content[-200:]
        assert stream.read() == b""
        assert stream.seek(65_530) == 65_530
        assert stream.read(20) == content[65_530:65_550]
        assert stream.seek(3, os.SEEK_CUR) == 65_553
        into = bytearray(1 << 20)
        assert stream.readinto(into) == 1 << 20
        assert into == content[65_553 : 65_553 + (1 << 20)]
        stream.seek(0)
        assert stream.read() == content
    assert fs.info(f"{folder}/{STREAM}")["size"] == len(content)


def test_what_users_of_fsspec_ask(folder: Path) -> None:
    fs = fsspec.filesystem("deepfreeze")
    assert not fs.exists(url(folder))
    fs.makedirs(url(folder), exist_ok=True)
    assert (fs.isdir(url(folder)), fs.ls(url(folder))) == (True, [])
    save(1, folder)
    fs = fsspec.filesystem("deepfreeze")
    names = [f"{folder}/.metadata", f"{folder}/{STREAM}"]
    assert fs.ls(url(folder), detail=False) == names
    assert (fs.isfile(names[1]), fs.isdir(names[1])) == (True, False)
    assert fs.exists(f"{url(folder)}/.metadata")
    assert not fs.exists(f"{url(folder)}/__1_0.distcp")
    assert sorted(fs.find(str(folder.parent))) == names
    with pytest.raises(FileNotFoundError):
        fs.open(f"{folder}/__1_0.distcp", "rb")
    with pytest.raises(ValueError, match="mode 'ab'"):
        fs.open(names[1], "ab")
    with pytest.raises(df.CheckpointError, match="use_collectives=False is not supported"):
        fs.mv(names[1], f"{folder}/elsewhere")
    with pytest.raises(ValueError, match="the name of an id can't be 'files'"):
        fs.mkdir(str(folder.parent / "files"))


def test_an_id_is_removed_whole_and_nothing_else(folder: Path) -> None:
    save(1, folder)
    fs = DeepFreezeFileSystem()
    for path in (f"{folder}/.metadata", f"{folder}/{STREAM}"):
        fs.rm(path)
    assert load(folder) == 1
    with pytest.raises(IsADirectoryError, match="it is a directory"):
        fs.rm(url(folder))
    with pytest.raises(IsADirectoryError, match="it is no id"):
        fs.rm(str(folder.parent), recursive=True)
    fs.rm(url(folder), recursive=True)
    assert list(folder.parent.iterdir()) == []
    assert not any(path.is_relative_to(folder) for path in _runs._runs)
    save(2, folder)
    assert load(folder) == 2


def test_a_run_is_no_id(run: Path) -> None:
    with df.Checkpointer(run) as ckpt:
        handle = ckpt.save(1, {"n": 1})
        assert handle is not None
        handle.wait()
    with pytest.raises(CheckpointException, match=r"it is a run; deepfreeze\.dcp\.StorageWriter"):
        save(1, run)


def test_few_runs_stay_open(folder: Path) -> None:
    for value in range(_OPEN_MAX):
        save(value, folder / str(value))
    assert len(_runs._runs) == _OPEN_MAX
    save(9, folder / "0")
    assert load(folder / "0") == 9


def test_another_process_may_have_written_since(folder: Path) -> None:
    save(1, folder)
    with df.Checkpointer(folder / "files" / STREAM) as other:
        handle = other.save(50, {"data": torch.zeros(3, dtype=torch.uint8)})
        assert handle is not None
        handle.wait()
    assert load(folder) == 1
    save(2, folder)
    assert load(folder) == 2


def test_without_collectives_is_refused(folder: Path) -> None:
    with pytest.raises(df.CheckpointError, match="use_collectives=False is not supported"):
        save(1, folder, use_collectives=False)
