"""The tools that make and check Debian packages, and those for aarch64, without making any."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import check_aarch64
import check_deb
import deb
from bare_root import RootError
from debian_archive import ArchiveError
from deepfreeze.base import program
from stamp import ROOT


def test_packages_have_the_version_of_the_program() -> None:
    native = program.find()
    assert native
    said = subprocess.run([native, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"deepfreeze {deb.version()}"


def test_missing_packages_are_named_without_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "dpkg-checkbuilddeps: error: Unmet build dependencies: cmake (>= 3.25) g++ (>= 4:12) dh-x\n"
    )
    done = SimpleNamespace(returncode=1, stderr=said)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert deb.needed_by_the_build() == ["cmake", "g++", "dh-x"]


def test_sources_of_packages_have_what_debian_installs() -> None:
    for name in ("libdeepfreeze-dev.docs", "libdeepfreeze-dev.examples"):
        for line in (ROOT / "debian" / name).read_text().split():
            assert line in deb.SOURCES


def test_the_commands_of_the_document_are_found() -> None:
    commands = check_deb.commands_of((ROOT / "docs" / "cpp.md").read_text()).splitlines()
    assert [line.split()[0] for line in commands] == ["cmake", "cmake", "mpirun", "mpirun"]
    with pytest.raises(RootError, match="no commands"):
        check_deb.commands_of("## A whole program\n\n    cmake -S .\n")


def test_all_verbs_of_help_are_found() -> None:
    native = program.find()
    assert native
    said = subprocess.run([native, "--help"], capture_output=True, text=True, check=True)
    verbs = check_deb.verbs_of(said.stdout)
    sources = (ROOT / "src" / "cli" / "command.h").read_text()
    assert len(verbs) == len(re.findall(r"Command add_\w+\(Program&", sources))
    assert {"ls", "explain-divergence", "study"} <= set(verbs)


def test_tests_that_qemu_cannot_run_are_still_there() -> None:
    text = "".join(path.read_text() for path in (ROOT / "src").rglob("*_test.cc"))
    for name in check_aarch64.NOT_UNDER_QEMU:
        suite, case = name.split(".")
        assert re.search(rf"TEST(_F)?\({suite}\w*, {case}\)", text)


def test_a_folder_without_a_test_program_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_aarch64, "TREE", tmp_path)
    monkeypatch.setattr(check_aarch64, "FOLDERS", ("codec", "format"))
    made = tmp_path / "src" / "codec" / "codec_test"
    made.parent.mkdir(parents=True)
    made.touch()
    with pytest.raises(ArchiveError, match=r"no test program of format$"):
        check_aarch64.test_programs()
    monkeypatch.setattr(check_aarch64, "FOLDERS", ("codec",))
    assert check_aarch64.test_programs() == [made]
