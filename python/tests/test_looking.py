"""ls, show, verify, doctor, scrub, diff, export and gc on deepfreeze:// ids that DCP saved to."""

from __future__ import annotations

import json
import shutil
import subprocess
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp_kit import quiet, url
from test_dcp_urls import STREAM, save_without_commit
from testkit import attempt_of, data_file, data_start, flip, header

from deepfreeze import _core
from deepfreeze.base import program
from deepfreeze.dcp.versions import forget
from deepfreeze.looking.command import main


class Colour(Enum):
    RED = 1


def state_of(value: int) -> dict[str, Any]:
    return {
        "model": {
            "w": torch.arange(6.0).reshape(2, 3) + value,
            "last": torch.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last),
            "half": torch.ones(5, dtype=torch.bfloat16) * value,
        },
        "layers": [{"b": torch.full((4,), value)}, {"b": torch.zeros(0)}],
        "epoch": value,
        "betas": (0.9, 0.99),
    }


def save(value: int, folder: Path) -> None:
    with quiet():
        dcp.save(state_of(value), checkpoint_id=url(folder))


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    folder = tmp_path / "ids"
    for value in (1, 2):
        save(value, folder / str(value))
    return folder


class Answer:
    """The result of one call."""

    def __init__(self, code: int, told: str, failed: str) -> None:
        self.code, self.told, self.failed = code, told, failed

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.told)
        return found


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Any:
    def call(*words: object) -> Answer:
        capfd.readouterr()
        code = main([str(word) for word in words])
        return Answer(code, *capfd.readouterr())

    return call


def data_of(folder: Path) -> Path:
    """The file of the newest version of an id's stream."""
    run = folder / "files" / STREAM
    (newest, *_) = _core.list_checkpoints(str(run))
    return next(Path(newest.path).glob("*.safetensors"))


def damage(folder: Path) -> None:
    file = data_of(folder)
    with file.open("r+b") as stream:
        stream.seek(-4, 2)
        last = stream.read(1)
        stream.seek(-4, 2)
        stream.write(bytes([last[0] ^ 1]))


def test_the_native_program_hands_such_a_directory_over(ids: Path) -> None:
    native = program.find()
    assert native is not None
    done = subprocess.run([native, "ls", url(ids), "--json"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["checkpoints"][0]["state"] == "committed"


def test_ls_has_a_line_for_each_checkpoint_newest_first(ids: Path, ask: Any) -> None:
    save(3, ids / "1")  # once more, to an older id: that is the newest then
    found = ask("ls", ids, "--json").json
    assert found["command"] == "ls"
    rows = [(row["id"], row["step"], row["flag"]) for row in found["checkpoints"]]
    assert rows == [("1", 2, "newest"), ("1", 1, "older version"), ("2", 1, "")]
    assert [stream["name"] for stream in found["checkpoints"][0]["streams"]] == [STREAM]
    table = ask("ls", ids).told
    assert table.splitlines()[0].split() == [
        "CHECKPOINT", "VERSION", "STREAMS", "BYTES", "TIME", "AGE", "FLAG",
    ]  # fmt: skip
    (row, _) = ask("ls", ids / "1", "--json").json["checkpoints"]
    assert (row["id"], row["step"]) == ("", 2)


def test_an_interrupted_save_is_listed_and_never_taken(
    ids: Path, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_without_commit(3, ids / "3", monkeypatch)
    rows = ask("ls", ids, "--json").json["checkpoints"]
    assert [(row["id"], row["state"]) for row in rows] == [
        ("2", "committed"), ("1", "committed"), ("3", "not committed"),
    ]  # fmt: skip
    assert ask("show", ids, "--json").json["dcp"]["id"] == "2"
    refused = ask("show", f"{ids}@3")
    assert refused.code == 3
    assert "was never committed" in refused.failed
    verified = ask("verify", ids)
    assert verified.code == 0
    assert "note: 3: not committed" in verified.told
    assert "note not_committed: 3" in ask("doctor", ids).told
    collected = ask("gc", ids, "--keep-last", 1, "--json").json
    assert [Path(one["path"]).name for one in collected["removed"]] == ["1"]
    assert [Path(one["path"]).name for one in collected["left"]] == ["3"]
    assert (ids / "3").is_dir()


@pytest.mark.parametrize("at", ["", "@latest", "@2", "/2"])
def test_show_lists_tensors_and_objects(at: str, ids: Path, ask: Any) -> None:
    found = ask("show", f"{ids}{at}", "--json").json
    assert found["dcp"]["id"] == ("" if at == "/2" else "2")
    tensors = {one["key"]: (one["dtype"], one["shape"]) for one in found["tensors"]}
    assert tensors == {
        "layers.0.b": ("I64", [4]), "layers.1.b": ("F32", [0]), "model.half": ("BF16", [5]),
        "model.last": ("F32", [2, 3, 2, 4]), "model.w": ("F32", [2, 3]),
    }  # fmt: skip
    objects = {one["path"]: one["value"] for one in found["objects"]}
    assert objects == {"betas.0": "0.9", "betas.1": "0.99", "epoch": "2"}
    table = ask("show", f"{ids}{at}").told
    assert "5 tensors" in table
    assert "model.last  F32    [2, 3, 2, 4]" in table


def test_show_has_the_statistics_of_a_tensor_and_the_value_of_an_object(
    ids: Path, ask: Any
) -> None:
    found = ask("show", f"{ids}@1", "model.w", "--json").json
    assert found["dcp"]["id"] == "1"
    assert (found["statistics"]["min"], found["statistics"]["max"]) == (1, 6)
    assert ask("show", f"{ids}@1", "betas.1", "--json").json["object"]["value"] == "0.99"
    assert "48 elements" in ask("show", ids, "model.last").told
    refused = ask("show", ids, "model.none", "--json")
    assert refused.code == 3
    assert refused.json["error"]["code"] == "not_found"


def test_an_object_of_a_class_is_told_and_not_loaded(tmp_path: Path, ask: Any) -> None:
    for name, colour in (("1", Colour.RED), ("2", "red")):
        state = {"w": torch.ones(2), "colour": colour}
        with quiet():
            dcp.save(state, checkpoint_id=url(tmp_path / name))
    found = ask("show", f"{tmp_path}@1", "--json").json
    (told,) = found["objects"]
    assert told["path"] == "colour"
    assert told["value"].startswith("not loaded: ")
    assert "Colour" in told["value"]
    different = ask("diff", f"{tmp_path}@1", f"{tmp_path}@2", "--json")
    assert different.code == 1
    assert [one["path"] for one in different.json["objects"]] == ["colour"]


def test_diff_compares_ids_with_each_other(ids: Path, ask: Any) -> None:
    found = ask("diff", f"{ids}@1", ids / "2", "--json")
    assert found.code == 1
    assert (found.json["a"]["path"], found.json["b"]["path"]) == (
        str(ids / "1"), str(ids / "2"),
    )  # fmt: skip
    assert {one["key"]: one["max_abs"] for one in found.json["tensors"]} == {
        "layers.0.b": 1, "model.half": 1, "model.w": 1,
    }  # fmt: skip
    assert found.json["equal_tensors"] == 2
    save(1, ids / "3")
    assert ask("diff", f"{ids}@1", f"{ids}@3").code == 0


def test_export_writes_what_was_saved(ids: Path, ask: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    done = ask("export", f"{ids}@2", out, "--prefix", "model.", "--keys", "model.w", "model.l*")
    assert done.code == 0, done.failed
    raw, start = out.read_bytes(), data_start(out)
    model = state_of(2)["model"]
    for name in ("w", "last"):
        begin, end = header(out)[name]["data_offsets"]
        expected = model[name].contiguous().numpy().tobytes()
        assert raw[start + begin : start + end] == expected, name
    assert sorted(set(header(out)) - {"__metadata__"}) == ["last", "w"]
    assert ask("export", f"{ids}@2", out).code == 3, "it is there"
    assert ask("export", f"{ids}@2", out, "--force", "--json").json["tensors"] == 5
    assert not list(tmp_path.glob(".deepfreeze*"))


def test_damage_is_a_fault_of_that_checkpoint_alone(ids: Path, ask: Any) -> None:
    damage(ids / "1")
    assert ask("doctor", ids).told.endswith("0 notes; blocks were not read\n")
    found = ask("verify", ids, "--json")
    assert found.code == 1
    assert [(one["id"], len(one["faults"])) for one in found.json["attempts"]] == [
        ("2", 0), ("1", 1),
    ]  # fmt: skip
    (fault,) = found.json["attempts"][1]["faults"]
    assert fault["file"].startswith(f"1/files/{STREAM}/step-")
    assert fault["blocks"]
    assert ask("verify", f"{ids}@2").code == 0
    assert ask("doctor", ids, "--verify").code == 1
    scrubbed = ask("scrub", ids, "--rate", 0)
    assert scrubbed.code == 1
    assert f"{ids / '1'} FAULT" in scrubbed.told
    assert f"{ids / '2'} ok" in scrubbed.told
    remembered = ask("doctor", ids, "--json").json
    reads = {one["id"]: one["last_full_read_good"] for one in remembered["checkpoints"]}
    assert reads == {"1": False, "2": True}
    for words in (["show", f"{ids}@1", "model.w"], ["diff", f"{ids}@1", f"{ids}@2"]):
        refused = ask(*words)
        assert refused.code == 3
        assert STREAM in refused.failed


def test_a_fast_check_reads_no_data_and_says_so(ids: Path, ask: Any) -> None:
    damage(ids / "1")
    for place, count in ((ids, 2), (f"{ids}@1", 1)):
        found = ask("verify", place, "--fast")
        assert found.code == 0
        assert found.told.endswith(f"{count} checkpoints looked at, 0 with a fault\n")
        assert "no checksum is kept there, size only" in found.told
    both = ask("verify", ids, "--fast", "--deep")
    assert both.code == 2
    assert "--deep reads everything and --fast no data" in both.failed
    file = data_file(ids / "2" / "files" / STREAM, 1)
    file.write_bytes(file.read_bytes()[:-1])
    assert ask("verify", ids, "--fast").code == 1


def test_a_stream_that_is_missing_or_whose_index_is_damaged(ids: Path, ask: Any) -> None:
    flip(data_file(ids / "1" / "files" / STREAM, 1), 20)
    shutil.rmtree(attempt_of(ids / "2" / "files" / STREAM, 1))
    rows = ask("ls", ids, "--json").json["checkpoints"]
    assert [row["state"] for row in rows] == ["fault", "fault"]
    found = ask("verify", ids, "--json")
    assert found.code == 1
    causes = {one["id"]: one["faults"][0]["cause"] for one in found.json["attempts"]}
    assert "gone" in causes["2"]
    assert ask("doctor", ids).code == 1
    assert "fault stream_missing: 2/.metadata" in ask("doctor", ids).told
    assert ask("show", ids).code == 3
    assert ask("gc", ids, "--keep-last", 1, "--json").json["removed"] == []


def test_gc_without_a_rule_deletes_no_committed_checkpoint(ids: Path, ask: Any) -> None:
    before = sorted(ids.rglob("*"))
    done = ask("gc", ids)
    assert done.code == 0
    assert "no committed checkpoint is deleted without --keep-last" in done.told
    assert sorted(ids.rglob("*")) == before
    (ids / "1").rename(ids / "1.0123abcd.removed")  # as after an interrupted removal
    assert "debris half_removed" in ask("doctor", ids).told
    assert len(ask("gc", ids, "--dry-run", "--json").json["removed"]) == 1
    assert (ids / "1.0123abcd.removed").is_dir()
    ask("gc", ids)
    assert [one.name for one in ids.iterdir()] == ["2"]


def test_gc_keeps_the_newest_and_those_of_a_multiple(ids: Path, ask: Any) -> None:
    for value in (3, 4):
        save(value, ids / f"step_{value}")
    dry = ask("gc", ids, "--keep-last", 1, "--keep-every", 2, "--dry-run")
    assert "would remove 2 directories" in dry.told
    assert len(list(ids.iterdir())) == 4
    ask("gc", ids, "--keep-last", 1, "--keep-every", 2)
    assert sorted(one.name for one in ids.iterdir()) == ["2", "step_4"]
    assert ask("verify", ids).code == 0


def test_gc_deletes_what_interrupted_saves_have_left(
    tmp_path: Path, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "id"
    run = folder / "files" / STREAM
    save(1, folder)
    save_without_commit(2, folder, monkeypatch)
    save(3, folder)
    steps = sorted(info.step for info in _core.list_checkpoints(str(run)))
    assert steps == [1, 2, 3], "what was written after the older commit stays"
    assert ask("gc", folder).code == 0
    assert ask("gc", folder, "--keep-last", 1).code == 0
    assert 1 not in [info.step for info in _core.list_checkpoints(str(run))]
    assert [row["step"] for row in ask("ls", folder, "--json").json["checkpoints"]] == [2]
    assert ask("verify", folder).code == 0


def test_a_job_goes_on_saving_after_gc(ids: Path, ask: Any) -> None:
    ask("gc", ids / "1", "--keep-last", 1)
    forget(ids)
    save(5, ids / "1")
    assert ask("show", ids / "1", "epoch", "--json").json["object"]["value"] == "5"


@pytest.mark.parametrize("verb", ["ls", "show", "verify", "doctor", "gc", "scrub"])
def test_what_holds_no_id_is_refused(verb: str, tmp_path: Path, ask: Any) -> None:
    refused = ask(verb, url(tmp_path), "--json")
    assert refused.code == 3
    assert refused.json["error"]["code"] == "not_found"
    assert ask("ls", f"{tmp_path}@1").code == 2
    assert ask("show", f"{tmp_path}@x").code == 2


def test_a_path_that_is_no_utf8_is_refused_with_one_line(ids: Path, ask: Any) -> None:
    odd = ids / "3\udcff"
    shutil.copytree(ids / "1", odd)
    refused = ask("ls", odd, "--json")
    assert refused.code == 3
    assert "3\\udcff: " in refused.failed
    assert refused.failed.count("\n") == 1
    assert refused.json["error"]["code"] == "unsupported"
    assert [row["id"] for row in ask("ls", ids, "--json").json["checkpoints"]] == ["2", "1"]


def test_the_header_is_where_the_stream_begins(ids: Path) -> None:
    """StreamFile reads safetensors itself; here it is compared with the kit of the tests."""
    from deepfreeze.looking.stream_file import StreamFile

    run = ids / "1" / "files" / STREAM
    (info,) = _core.list_checkpoints(str(run))
    file = StreamFile(info)
    path = data_file(run, 1)
    assert bytes(file.memory[:4]) == b"PK\3\4"
    assert path.read_bytes()[data_start(path) :].startswith(bytes(file.memory))
