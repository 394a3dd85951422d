#!/usr/bin/env python3
"""`make setup`: system packages and .venv. A second call only compares hashes.

1. Debian packages of tools/apt-packages.txt: installed if missing and allowed, else named.
2. .venv from this interpreter, with the exact versions of tools/requirements-test.txt.
3. An object store for tests/objects, tools/requirements-store.txt. They are left out without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from stamp import ROOT, VENV, Stamp, digest

TOOLS = ROOT / "tools"
PACKAGES = TOOLS / "apt-packages.txt"
REQUIREMENTS = TOOLS / "requirements-test.txt"
INTEROP = TOOLS / "requirements-interop.txt"
STORE = TOOLS / "requirements-store.txt"
INCLUDE_FOLDERS = (Path("/usr/include"), Path("/usr/local/include"))
CMAKE_MIN = (3, 25)
# Not the whole version: apt may install a newer patch release below this very process.
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def stop(text: str) -> int:
    print(f"setup: {text}", file=sys.stderr, flush=True)
    return 1


def cmake_is_old() -> bool:
    output = subprocess.run(["cmake", "--version"], capture_output=True, text=True, check=False)
    words = output.stdout.split()
    version = words[2] if len(words) > 2 else "0"
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < CMAKE_MIN


def is_evident(witness: str) -> bool:
    """Whether the thing exists, installed by us or not."""
    if witness == "-":
        return False
    if witness.endswith((".h", ".hpp")):
        return any((folder / witness).exists() for folder in INCLUDE_FOLDERS)
    if shutil.which(witness) is None:
        return False
    return witness != "cmake" or not cmake_is_old()


def is_installed(package: str) -> bool:
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status}", package]
    output = subprocess.run(query, capture_output=True, text=True, check=False)
    return output.returncode == 0 and output.stdout.strip() == "installed"


def wanted_packages() -> list[tuple[str, str]]:
    lines = [line.split("#")[0].split() for line in PACKAGES.read_text().splitlines()]
    return [(line[0], line[1]) for line in lines if line]


def python_lacks() -> list[str]:
    """Debian packages that its own Python needs for `venv` and for compiling extensions."""
    lacks = []
    probe = subprocess.run(
        [sys.executable, "-c", "import ensurepip, venv"], capture_output=True, check=False
    )
    if probe.returncode != 0:
        lacks.append(f"python{PYTHON}-venv")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        lacks.append(f"python{PYTHON}-dev")
    return lacks


def root_prefix() -> list[str] | None:
    """The words before a command that runs it as root; None if we may not."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    allowed = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
    return ["sudo", "-n"] if allowed.returncode == 0 else None


def install(missing: list[str]) -> int:
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    by_hand = f"    sudo apt-get update && sudo {' '.join(command)}"
    prefix = root_prefix()
    if prefix is None:
        return stop(
            f"these system packages are missing: {' '.join(missing)}\n"
            f"setup: installing them needs root. Run this, then try again:\n{by_hand}"
        )
    say(f"installing system packages: {' '.join(missing)}")
    quiet = ["env", "DEBIAN_FRONTEND=noninteractive"]
    for step in (["apt-get", "update", "-q"], [*command, "-q"]):
        done = subprocess.run([*prefix, *quiet, *step], stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            return stop(f"`{' '.join(step)}` failed (see above). By hand:\n{by_hand}")
    return 0


def system_packages() -> int:
    missing = [
        name
        for name, witness in wanted_packages()
        if not is_evident(witness) and not is_installed(name)
    ]
    lacks = python_lacks()
    if lacks and sys.base_prefix != "/usr":
        return stop(
            f"{sys.executable} lacks the venv module or its headers. Use a complete "
            "Python, e.g. `make PYTHON=/usr/bin/python3.11 setup`."
        )
    missing += lacks
    if not missing:
        return 0
    if shutil.which("apt-get") is None:
        return stop(f"no apt-get here; please install what Debian calls: {' '.join(missing)}")
    return install(missing)


def pip_install(*arguments: str) -> int:
    """Modules are compiled when they are first imported: most never are."""
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
    command += ["--quiet", "--progress-bar=off", "--no-compile", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode


def venv_is_usable() -> bool:
    """Made by a Python of our version, and that is still there."""
    probe = ["-c", "import sys, pip; print('%d.%d' % sys.version_info[:2])"]
    try:
        output = subprocess.run(
            [str(VENV / "bin" / "python"), *probe], capture_output=True, text=True, check=False
        )
    except OSError:
        return False
    return output.stdout.strip() == PYTHON


def make_venv() -> int:
    if venv_is_usable():
        return 0
    if VENV.exists():
        shutil.rmtree(VENV)
    say(f"making .venv with Python {sys.version.split()[0]}")
    return subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=False).returncode


def python_packages() -> int:
    stamp = Stamp(VENV / ".stamp", digest([REQUIREMENTS, INTEROP], sys.base_prefix, PYTHON))
    if stamp.is_current():
        return 0
    if make_venv() != 0:
        return stop(f"`{sys.executable} -m venv .venv` failed (see above)")
    say("installing Python packages into .venv; torch is a large download")
    if pip_install("-r", str(REQUIREMENTS)) != 0:
        return stop("pip could not install tools/requirements-test.txt (see above)")
    old = ("--no-deps", "--upgrade", "--target", str(VENV / "interop"))
    if pip_install(*old, "-r", str(INTEROP)) != 0:
        return stop("pip could not install tools/requirements-interop.txt (see above)")
    stamp.write()
    return 0


def object_store() -> int:
    """The next call tries again if it can't be had now."""
    stamp = Stamp(VENV / ".stamp-store", digest([STORE], PYTHON))
    if stamp.is_current():
        return 0
    exactly = ("--no-deps", "--only-binary=:all:", "--require-hashes")
    if pip_install(*exactly, "-r", str(STORE)) == 0:
        stamp.write()
    else:
        say("no object store (see above): the tests that need one will be left out")
    return 0


def main() -> int:
    if sys.version_info < (3, 11):
        return stop(
            f"Python 3.11 or newer is needed, {sys.executable} is "
            f"{sys.version.split()[0]}. Name one: make PYTHON=python3.11 setup"
        )
    return system_packages() or python_packages() or object_store()


if __name__ == "__main__":
    sys.exit(main())
