"""The command itself: kinds, steps, lines, output, and runs that stay unchanged."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from import_kit import import_it, imported, refusal
from safetensors.torch import save_file
from testkit import assert_same, save

import deepfreeze as df
from deepfreeze.base.progress import Progress, human_bytes
from deepfreeze.importing import command, saving, source_files, torch_file


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt"
    torch.save({"w": torch.arange(6.0), "epoch": 3}, path)
    return path


def test_says_what_it_did(source: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_it(source, run, "--step", "40") == 0
    assert capsys.readouterr().out == f"1 tensors, 24 B, from torch, to {run}, step 40\n"
    assert import_it(source, run, "--step", "41", "--json") == 0
    done = json.loads(capsys.readouterr().out)
    (info,) = (one for one in df.Checkpointer(run).checkpoints() if one.step == 41)
    assert done == {
        "format": 1, "command": "import", "source": str(source), "kind": "torch", "run": str(run),
        "checkpoint": {
            "generation": info.generation, "step": 41, "save": info.save_index,
            "attempt": info.attempt_id,
        },
        "tensors": 1, "bytes": 24, "warnings": [],
    }  # fmt: skip
    assert info.tags == {"imported_from": str(source), "imported_kind": "torch"}
    assert info.environment == {}


def test_imports_are_one_line_and_training_goes_on_from_it(source: Path, run: Path) -> None:
    assert import_it(source, run, "--step", "10") == 0
    assert import_it(source, run, "--step", "20") == 0
    with df.Checkpointer(run) as ckpt:
        assert ckpt.steps() == [10, 20]
        live = {"w": torch.zeros(6), "epoch": 0}
        weights = live["w"]
        assert ckpt.restore(live) == 20
        assert live["w"] is weights
        assert live["epoch"] == 3
        save(ckpt, 21, live)
        assert ckpt.steps() == [10, 20, 21]


@pytest.mark.parametrize("step", [5, 9])
def test_a_step_that_is_there_or_older_is_refused(
    source: Path, run: Path, step: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 5, {"x": 1})
        save(ckpt, 10, {"x": 1})
    before = sorted(path.name for path in run.iterdir())
    assert import_it(source, run, "--step", str(step), "--json") == 3
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "exists"
    assert f"import step {step} into {run}" in error["message"]
    assert sorted(path.name for path in run.iterdir()) == before


def test_an_abandoned_step_may_be_newer_but_not_the_same(
    source: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"x": 1}
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 1, state)
        save(ckpt, 9, state)
        ckpt.restore(state, step=1)
        save(ckpt, 2, state)
    assert import_it(source, run, "--step", "9") == 3
    assert import_it(source, run, "--step", "5") == 0
    assert df.Checkpointer(run).steps() == [1, 2, 5]


@pytest.mark.parametrize(
    "arguments",
    [[], ["a"], ["a", "run", "--step", "-1"], ["a", "run", "--step", str(1 << 64)],
     ["a", "run", "--step", "1.5"], ["a", "run", "--from", "caffe"], ["a", "run@5"],
     ["a", "run", "more"]],
)  # fmt: skip
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_main(arguments)
    assert ended.value.code == 2
    assert "usage: deepfreeze" in capsys.readouterr().err


def command_main(arguments: list[str]) -> None:
    from deepfreeze.__main__ import main

    main(["import", *arguments])


def test_a_directory_with_an_at_in_its_name_is_a_run(source: Path, tmp_path: Path) -> None:
    run = tmp_path / "mine@5"
    run.mkdir()
    assert import_it(source, run) == 0
    assert df.Checkpointer(run).steps() == [0]


def test_what_is_no_source_is_refused(
    tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = tmp_path / "odd"
    assert refusal(odd, run, capsys) == ("not_found", f"read {odd}: No such file or directory")
    odd.write_bytes(b"")
    assert "begins with nothing" in refusal(odd, run, capsys)[1]
    odd.write_bytes(b"\x7fELF\r\n\x1a\n" + bytes(100))
    code, message = refusal(odd, run, capsys)
    assert code == "unsupported"
    assert "at 0: it begins with 7f 45 4c 46" in message
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no .metadata (DCP), no safetensors files" in refusal(empty, run, capsys)[1]
    (empty / "__0.metadata").write_bytes(b"")
    assert "use_collectives=False" in refusal(empty, run, capsys)[1]
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in refusal(tmp_path / "pipe", run, capsys)[1]
    long = tmp_path / ("n" * 300)
    for more in ([], ["--from", "safetensors"], ["--from", "torch"], ["--from", "dcp"]):
        code, message = refusal(long, run, capsys, *more)
        assert (code, message.endswith(": File name too long")) == ("io", True)
    assert not run.exists()


def test_from_overrides_what_the_content_says(
    source: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        "at 0: it does not begin as a safetensors"
        in refusal(source, run, capsys, "--from", "safetensors")[1]
    )
    assert refusal(source, run, capsys, "--from", "dcp")[0] == "not_found"
    assert refusal(source.parent, run, capsys, "--from", "torch")[0] == "unsupported"
    assert import_it(source, run, "--from", "torch") == 0


def test_control_characters_do_not_reach_the_terminal(
    tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert import_it(tmp_path / "a\x1b[2J\x85\udcff", run) == 3
    said = capsys.readouterr().err
    assert said.isprintable() or said.rstrip("\n").isprintable()
    assert "\\x1b[2J\\x85" in said


def test_a_source_that_changes_meanwhile_makes_no_checkpoint(
    source: Path, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = saving._Saving._watch

    def touch_and_watch(self: Any, wait: Any) -> None:
        os.utime(source, ns=(1, 1))
        original(self, wait)

    monkeypatch.setattr(saving._Saving, "_watch", touch_and_watch)
    code, message = refusal(source, run, capsys)
    assert (code, message) == ("torn_capture", f"read {source}: it changed while it was imported")
    monkeypatch.undo()
    assert import_it(source, run) == 0


def test_a_change_is_seen_whose_time_was_set_back(
    source: Path, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = saving._Saving._watch
    before = source.stat()

    def write_and_watch(self: Any, wait: Any) -> None:
        with source.open("r+b") as file:
            file.write(file.read(1))
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
        original(self, wait)

    monkeypatch.setattr(saving._Saving, "_watch", write_and_watch)
    assert refusal(source, run, capsys)[0] == "torn_capture"


def test_a_source_without_tensors_is_not_exchanged_either(
    source: Path, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"epoch": 1}, source)
    torch.save({"epoch": 2}, source.with_name("other"))
    original = torch_file.load

    def exchange_and_load(path: Any, *, mapped: bool = False) -> Any:
        source.with_name("other").rename(source)
        return original(path, mapped=mapped)

    monkeypatch.setattr(torch_file, "load", exchange_and_load)
    assert refusal(source, run, capsys)[0] == "torn_capture"
    assert not run.exists()


def test_an_interrupt_gives_the_save_up(
    source: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(source_files.SourceFile, "check_unchanged", interrupt)
    assert import_it(source, run) == 130
    assert not list(run.glob("step-*/manifest.json"))
    monkeypatch.undo()
    assert import_it(source, run) == 0


def test_more_than_the_arena_streams_through(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "ARENA_BYTES_MAX", 8 << 20)
    torch.manual_seed(3)
    tensors = {f"t{index}": torch.randn(1 << 20) for index in range(10)}
    save_file(tensors, tmp_path / "x.safetensors")
    found = imported(tmp_path / "x.safetensors", run)
    for name, tensor in tensors.items():
        assert_same(found[name], tensor)


def test_a_state_without_tensors(tmp_path: Path, run: Path) -> None:
    torch.save({"epoch": 3, "empty": torch.zeros(0, 2)}, tmp_path / "x.pt")
    found = imported(tmp_path / "x.pt", run)
    assert found["epoch"] == 3
    assert found["empty"].shape == (0, 2)


def test_an_error_that_nobody_foresaw_names_the_source(
    source: Path, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(command, "reader_of", lambda kind: read)
    assert refusal(source, run, capsys) == ("internal", f"read {source}: RuntimeError('odd')")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_after_a_second_and_only_on_a_terminal() -> None:
    now = [0.0]
    for stream in (Terminal(), io.StringIO()):
        now[0] = 0.0
        with Progress("import", 2000, stream, lambda: now[0]) as progress:
            progress.add(10)
            assert stream.getvalue() == ""
            now[0] = 2.0
            progress.add(990)
            shown = stream.getvalue()
            progress.add(1)  # too soon to be drawn again
            assert stream.getvalue() == shown
        bar = f"import [{'#' * 15}{'-' * 15}]  50%  1.0 kB of 2.0 kB  500 B/s"
        wanted = f"\r\033[K{bar}\r\033[K" if stream.isatty() else ""
        assert stream.getvalue() == wanted


def test_sizes_for_people() -> None:
    sizes = (0, 999, 1000, 999_949, 999_950, 306_900_000, 10**19)
    shown = ["0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB", "306.9 MB", "10.0 EB"]
    assert [human_bytes(size) for size in sizes] == shown


def test_the_native_program_and_the_module_are_one(source: Path, run: Path) -> None:
    import subprocess
    import sys

    program = Path(sys.prefix) / "bin" / "deepfreeze"
    done = subprocess.run(
        [program, "import", source, run, "--step", "3", "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["checkpoint"]["step"] == 3
    shown = subprocess.run([program, "import", "--help"], stdout=-1, text=True, check=True)
    assert "SOURCE is one of" in shown.stdout
    assert command._EPILOG.strip() in shown.stdout


def into(stream: str, source: Path, run: Path, *more: str) -> tuple[int, str]:
    """The exit status and the messages of a program whose standard output is `stream`."""
    import subprocess
    import sys

    command = [sys.executable, "-m", "deepfreeze", "import", str(source), str(run), *more]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    with open(stream, "w") as output:
        done = subprocess.run(
            command, stdout=output, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    return done.returncode, done.stderr


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_output_that_can_not_be_written_is_a_failure(
    source: Path, run: Path, more: tuple[str, ...]
) -> None:
    code, said = into("/dev/full", source, run, *more)
    assert code == 3
    assert said.count("\n") == 1
    assert "write standard output" in said
    assert df.Checkpointer(run).steps() == [0], "it is there all the same"


def test_a_name_that_the_terminal_can_not_show(source: Path, tmp_path: Path) -> None:
    assert into(str(tmp_path / "said"), source, tmp_path / "l\u00fc") == (0, "")
    assert "l\\xfc, step 0" in (tmp_path / "said").read_text()
