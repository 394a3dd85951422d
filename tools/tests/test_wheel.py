"""The tools that make and check wheels, on results of `make build` and on fakes."""

from __future__ import annotations

import re
import sys
import zipfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import check_wheel
import wheel
import wheel_facts
import wheel_trial
from deepfreeze import _core
from deepfreeze.base import program

# Debian's shared libraries that `make build` links with; all others are loaded when needed.
LINKED = wheel_facts.SYSTEM_LIBRARIES | {"libstdc++.so.6", "libfmt", "libisal", "liburing"}
EXTENSION = Path(_core.__file__)
WHOLE = wheel_facts.Binary(
    needed=frozenset({"libc.so.6"}),
    run_paths=(),
    exported=frozenset({wheel_facts.ENTRY}),
    glibc=(2, 34),
    has_executable_stack=False,
    has_symbol_table=False,
)


def native() -> Path:
    found = program.find()
    assert found
    return found


def test_nothing_is_linked_that_can_be_loaded_at_run_time() -> None:
    for path in (EXTENSION, native()):
        binary = wheel_facts.read(path)
        foreign = {
            name
            for name in binary.needed
            if name not in LINKED and name.split(".so")[0] not in LINKED
        }
        assert not foreign
        assert not binary.run_paths
        assert not binary.has_executable_stack
        assert binary.glibc <= wheel_facts.GLIBC_MAX
        assert "libc.so.6" in binary.needed
    assert wheel_facts.ENTRY in wheel_facts.read(EXTENSION).exported
    assert not any("deepfreeze" in name for name in wheel_facts.read(native()).exported)


def test_licenses_of_what_is_compiled_in_are_installed() -> None:
    files = metadata.files("deepfreeze-checkpoint") or []
    found = {file.stem for file in files if "licenses" in file.parts}
    assert found == {"LICENSE", *wheel_facts.NOTICES}


def test_a_wheel_of_the_ordinary_build_is_refused(tmp_path: Path) -> None:
    made = tmp_path / "deepfreeze_checkpoint-0-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.write(EXTENSION, f"deepfreeze/{EXTENSION.name}")
        archive.write(native(), "deepfreeze_checkpoint-0.data/scripts/deepfreeze")
        archive.writestr("deepfreeze_checkpoint-0.dist-info/licenses/licenses/fmt.txt", "")
        archive.writestr("deepfreeze/__init__.py", "")
    faults = "\n".join(wheel_facts.faults_in(made))
    assert re.search(r"_core\S+ needs .*libstdc\+\+\.so\.6", faults)
    assert re.search(r"scripts/deepfreeze needs .*libfmt", faults)
    assert "the license of isa-l" in faults
    assert "the license of fmt" not in faults
    assert "is not in it" not in faults.replace("compiled in, is not in it", "")


def test_an_empty_wheel_is_refused(tmp_path: Path) -> None:
    made = tmp_path / "empty.whl"
    zipfile.ZipFile(made, "w").close()
    faults = wheel_facts.faults_in(made)
    assert "the native program deepfreeze is not in it" in faults
    assert "the extension module is not in it" in faults


def changed(values: dict[str, Any]) -> wheel_facts.Binary:
    return replace(WHOLE, **values)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"needed": frozenset({"libfmt.so.9"})}, "needs libfmt.so.9"),
        ({"run_paths": ("/opt/lib",)}, "looks for libraries in /opt/lib"),
        ({"exported": frozenset({wheel_facts.ENTRY, "foreign"})}, "exports 1 symbols"),
        ({"glibc": (2, 35)}, "needs glibc 2.35"),
        ({"has_executable_stack": True}, "executable stack"),
        ({"has_symbol_table": True}, "not stripped"),
    ],
)
def test_each_fault_is_told(change: dict[str, Any], told: str) -> None:
    allowed = frozenset({wheel_facts.ENTRY})
    assert not list(wheel_facts.faults_of("_core.so", WHOLE, allowed))
    (fault,) = wheel_facts.faults_of("_core.so", changed(change), allowed)
    assert told in fault


def test_readelf_is_understood() -> None:
    text = """
  [28] .symtab           SYMTAB          0000000000000000 003038 000360 18     29  18  8
  GNU_STACK      0x000000 0x0000000000000000 0x0000000000000000 0x000000 0x000000 RWE 0x10
 0x0000000000000001 (NEEDED)             Shared library: [libm.so.6]
 0x000000000000001d (RUNPATH)            Library runpath: [$ORIGIN/../lib]
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND stat@GLIBC_2.33 (2)
     2: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND log2@GLIBC_2.4 (3)
     3: 0000000000001129    11 FUNC    WEAK   DEFAULT   12 shown@@OWN_1
"""
    binary = wheel_facts.parse(text)
    assert binary == wheel_facts.Binary(
        needed=frozenset({"libm.so.6"}),
        run_paths=("$ORIGIN/../lib",),
        exported=frozenset({"shown"}),
        glibc=(2, 33),
        has_executable_stack=True,
        has_symbol_table=True,
    )


def test_an_interpreter_that_does_not_run_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tmp_path / "versions" / "3.11.9" / "bin" / "python"
    found.parent.mkdir(parents=True)
    found.symlink_to(sys.executable)
    shim = tmp_path / "shims" / "python3.11"
    shim.parent.mkdir()
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(shim.parent))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert list(wheel.candidates(11)) == [str(shim), str(found)]
    minor = sys.version_info.minor
    monkeypatch.setattr(wheel, "GROUPS", ((minor,), (99,)))
    monkeypatch.setattr(wheel, "candidates", lambda _: [str(shim), str(found)])
    assert wheel.pythons() == [str(found)]


def seen(**changes: object) -> dict[str, object]:
    good: dict[str, object] = {
        "compilers": [], "goes_on": True, "same_bits": True, "native": True, "error": "refused",
        "ls": "STEP AGE\n22 9 s\n", "module_ls": "STEP AGE\n22 10 s\n", "last_step": 22,
        "imports": 0.1,
    }  # fmt: skip
    return {**good, **changes}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"compilers": ["cc"]}, "compilers"),
        ({"goes_on": False}, "goes_on"),
        ({"same_bits": False}, "same_bits"),
        ({"native": False}, "native"),
        ({"error": ""}, "an error of the core"),
        ({"module_ls": "STEP AGE\n21 9 s\n"}, "lists something else"),
        ({"last_step": 23}, "does not list step 23"),
        ({"imports": 0.2}, "import deepfreeze takes"),
    ],
)
def test_each_fault_of_a_trial_is_told(changes: dict[str, object], told: str) -> None:
    assert not check_wheel.faults_in(seen())
    (fault,) = check_wheel.faults_in(seen(**changes))
    assert told in fault


def test_the_trial_runs_the_lines_of_the_readme() -> None:
    text = check_wheel.readme_program()
    assert (
        text.count(wheel_trial.STEPS) == check_wheel.numpy_program().count(wheel_trial.STEPS) == 1
    )
    compile(text, "first.py", "exec")


def test_a_killed_trial_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = check_wheel.numpy_program()
    first = Path("killed/first.py")
    first.parent.mkdir()
    first.write_text(text)
    last, _ = wheel_trial.killed(Path(sys.executable), first)
    assert last >= wheel_trial.KILLED_AFTER
    told = wheel_trial.resumes(Path(sys.executable), text, last)
    assert (told["goes_on"], told["same_bits"], told["last_step"]) == (True, True, last + 2)
