"""`python3 -m deepfreeze VERB` of the native program's verbs, and study without a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepfreeze.__main__ import main
from deepfreeze.base import program, studying


def elf(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF and more")
    path.chmod(0o755)
    return path


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deepfreeze", *words], capture_output=True, text=True, check=False
    )


def test_native_verbs_are_handed_over_with_their_words_and_exit_code(tmp_path: Path) -> None:
    refused = call("ls", "no such run")
    assert refused.returncode == 3
    assert "deepfreeze ls:" in refused.stderr
    assert "no such run" in refused.stderr
    help_of_all = call("--help")
    assert help_of_all.returncode == 0
    assert all(verb in help_of_all.stdout for verb in ("ls", "scrub", "import", "explore", "study"))
    assert call("nosuch").returncode == 2
    assert call().returncode == 2


def test_the_verbs_in_python_stay_here(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["import", "--help"])
    assert ended.value.code == 0
    assert "torch.save" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["explore", "--help"])
    assert ended.value.code == 0
    assert "--html" in capsys.readouterr().out


def test_without_the_program_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "_candidates", lambda: iter([Path("/nowhere/deepfreeze")]))
    assert main(["ls", "run"]) == 3
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "pip install" in told


def test_a_script_of_that_name_is_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that calls us would be called by us for ever."""
    script = elf(tmp_path / "scripts" / "deepfreeze")
    script.write_text("#!/bin/sh\nexec python3 -m deepfreeze\n")
    private = elf(tmp_path / "private" / "deepfreeze")
    private.chmod(0o644)
    binary = elf(tmp_path / "path" / "deepfreeze")
    for names, expected in (([script], None), ([script, private.parent, binary], binary)):
        monkeypatch.setattr(program, "_candidates", lambda names=names: iter(names))
        assert program.find() == expected


def test_the_path_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = elf(tmp_path / "deepfreeze")
    monkeypatch.setattr(program, "_installed", list)
    monkeypatch.setattr(program, "__file__", str(tmp_path / "x" / "y" / "z" / "program.py"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere" / "python3"))
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "nowhere"), str(tmp_path)]))
    assert program.find() == binary


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_of_study_says_that_it_needs_a_checkout(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "prefix", "/nowhere/.venv")
    assert studying.main([word]) == 0
    told = capsys.readouterr()
    assert "checkout" in told.out
    assert told.out.startswith("usage: deepfreeze study")
    assert not told.err
