#!/usr/bin/env python3
"""`make deb`: Debian packages of the program and of the C++ library, in build/deb (record 0035).

1. Debian's tools, and what debian/control says that a build needs: installed if they are missing
   and root allows it.
2. The sources of the packages, in a folder of their own, so that nothing is written beside them.
3. dpkg-buildpackage; then lintian, whose errors and warnings are ours.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import setup
from build import environment
from stamp import BUILD, ROOT, files_under

PACKAGES = BUILD / "deb"
SOURCES = (
    *("CMakeLists.txt", "LICENSE", "cmake", "debian", "include", "licenses", "src"),
    *("docs/cpp.md", "examples/mpi_heat"),
)
TOOLS = {"dpkg-buildpackage": "dpkg-dev", "dh": "debhelper", "lintian": "lintian"}


class DebError(Exception):
    """Why there are no packages."""


def say(text: str) -> None:
    print(f"deb: {text}", flush=True)


def run(command: list[str], folder: Path = ROOT, **settings: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**environment(), **settings},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise DebError(f"`{' '.join(command)}` failed (see above)")


def version() -> str:
    """Of the packages; a test compares it with that of the program."""
    first = (ROOT / "debian" / "changelog").read_text().splitlines()[0]
    found = re.fullmatch(r"deepfreeze \(([0-9.]+)\) \w+; urgency=\w+", first)
    if not found:
        raise DebError(f"debian/changelog begins with no version: {first}")
    return found[1]


def needed_by_the_build() -> list[str]:
    """Packages of Build-Depends that are not installed, without their versions."""
    done = subprocess.run(
        ["dpkg-checkbuilddeps"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return []
    _, _, names = done.stderr.partition("Unmet build dependencies: ")
    return re.sub(r"\s*\([^)]*\)", "", names).split()


def require(missing: list[str]) -> None:
    if missing and setup.install(missing) != 0:
        raise DebError(f"needed and not there: {' '.join(missing)}")


def require_tools() -> None:
    require([package for name, package in TOOLS.items() if shutil.which(name) is None])
    require(needed_by_the_build())


def copied_sources() -> Path:
    shutil.rmtree(PACKAGES, ignore_errors=True)
    folder = PACKAGES / f"deepfreeze-{version()}"
    for path in files_under(*SOURCES):
        to = folder / path.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    return folder


def make() -> None:
    start = time.monotonic()
    require_tools()
    folder = copied_sources()
    say("compiling: some minutes")
    # The distribution's tools, and not those of a Python that happens to be first.
    path = os.pathsep.join(("/usr/sbin", "/usr/bin", "/sbin", "/bin"))
    jobs = environment()["CMAKE_BUILD_PARALLEL_LEVEL"]
    settings = {
        "PATH": path,
        "DEB_BUILD_OPTIONS": f"noautodbgsym terse parallel={jobs}",
        "CCACHE_DIR": str(BUILD / "deb-ccache"),  # debhelper hides the home folder
    }
    run(["dpkg-buildpackage", "--build=binary", "-us", "-uc"], folder, **settings)
    changes = next(PACKAGES.glob("*.changes"))
    run(["lintian", "--allow-root", "--fail-on", "error,warning", str(changes)], PATH=path)
    for package in sorted(PACKAGES.glob("*.deb")):
        say(f"build/deb/{package.name}: {package.stat().st_size / 2**20:.2f} MiB")
    say(f"lintian has nothing against them; {time.monotonic() - start:.0f} s")


def main() -> int:
    try:
        make()
    except DebError as error:
        print(f"deb: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
