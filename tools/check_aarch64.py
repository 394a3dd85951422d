#!/usr/bin/env python3
"""`make check-aarch64`: the core compiled for aarch64, and its tests under qemu (record 0035).

1. Debian's cross compiler and qemu: installed if they are missing and root allows it.
2. build/roots/arm64: Debian's libraries for aarch64, unpacked there and not installed. The
   packages of this machine stay as they are, and this step needs no root.
3. The preset aarch64: the whole core, the program, and the tests of FOLDERS.
4. Each test program under qemu, which emulates processor and system calls. It has no io_uring, so
   the engine writes by its threads.

The line before the last lists skipped tests and the reasons; the last one counts all cases.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import build
import setup
from debian_archive import ArchiveError, run, updated_apt
from run_tests import Outcome, run_reporting
from stamp import BUILD, Stamp, digest

TREE = BUILD / "aarch64"
ARM64_ROOT = BUILD / "roots" / "arm64"  # also named in cmake/aarch64.cmake
ARCHIVE = BUILD / "aarch64-archive"
PROGRAMS = {  # program: Debian's package
    "aarch64-linux-gnu-g++-12": "g++-12-aarch64-linux-gnu",
    "qemu-aarch64-static": "qemu-user-static",
    "cmake": "cmake",
    "ninja": "ninja-build",
}
LIBRARIES = (
    "libstdc++-12-dev",
    "libfmt-dev",
    "libisal-dev",
    "liburing-dev",
    "libgtest-dev",
    "libcli11-dev",
    "nlohmann-json3-dev",
    "libzstd1",
)
# The slowest first. Nothing in the other folders depends on the processor.
FOLDERS = (
    *("restore", "pipeline", "staging", "protect", "manifest", "format", "codec", "json"),
    *("packed", "base", "plan", "device", "arena", "tensor", "storage"),
)
# Two things are not done by qemu: it starts a program before it tells that there is none, and it
# answers that it has taken memory (MADV_POPULATE_WRITE) when it has not.
NOT_UNDER_QEMU = (
    "SpawnApart.AProgramThatIsMissingIsAnError",
    "Arena.ReservesWholeSlabsThatAreAllResident",
    "Arena.GrowsOnDemand",
    "Arena.StopsWithTheSlabsThatItHasAndGoesOnLater",
)


def say(text: str) -> None:
    print(f"check-aarch64: {text}", flush=True)


def require_programs() -> None:
    missing = [package for name, package in PROGRAMS.items() if shutil.which(name) is None]
    if missing and setup.install(missing) != 0:
        raise ArchiveError(f"needed and not there: {' '.join(missing)}")


def require_root() -> None:
    """Packages and all that they need, as if nothing were installed."""
    stamp = Stamp(ARM64_ROOT / ".stamp", digest([], *LIBRARIES))
    if stamp.is_current():
        return
    say("fetching Debian's libraries for aarch64 into build/roots/arm64")
    shutil.rmtree(ARM64_ROOT, ignore_errors=True)
    shutil.rmtree(ARCHIVE, ignore_errors=True)
    packages = ARCHIVE / "packages"
    (packages / "partial").mkdir(parents=True)
    (ARCHIVE / "status").touch()
    apt = updated_apt(
        ARCHIVE,
        "deb",
        "APT::Architecture=arm64",
        "APT::Architectures::=arm64",
        f"Dir::State::status={ARCHIVE / 'status'}",
        f"Dir::Cache={ARCHIVE}",
        f"Dir::Cache::archives={packages}",
    )
    run([*apt, "install", "-y", "--download-only", "--no-install-recommends", *LIBRARIES])
    ARM64_ROOT.mkdir(parents=True)
    for package in sorted(packages.glob("*.deb")):
        run(["dpkg-deb", "--extract", str(package), str(ARM64_ROOT)])
    stamp.write()


def compile_all() -> None:
    say("compiling the core, the program and the tests: some minutes, the first time")
    targets = ["deepfreeze", "df_api", *(f"src/{folder}/all" for folder in FOLDERS)]
    configure = ["cmake", "--preset", "aarch64"]
    compiling = ["cmake", "--build", "--preset", "aarch64", "--target", *targets]
    if build.run(configure) != 0 or build.run(compiling) != 0:
        raise ArchiveError("it does not compile for aarch64 (see above)")


def under_qemu(program: Path) -> list[str]:
    return ["qemu-aarch64-static", "-L", str(ARM64_ROOT), str(program)]


def tried(program: Path) -> Outcome:
    report = TREE / "reports" / f"{program.name}.xml"
    options = ["--gtest_brief=1", f"--gtest_output=xml:{report}"]
    options.append(f"--gtest_filter=-{':'.join(NOT_UNDER_QEMU)}")
    return run_reporting([*under_qemu(program), *options], report)


def test_programs() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((TREE / "src" / folder).glob("*_test"))]
    without = [folder for folder in FOLDERS if not any(p.parent.name == folder for p in found)]
    if without:
        raise ArchiveError(f"there is no test program of {', '.join(without)}")
    return found


def check() -> Outcome:
    require_programs()
    require_root()
    compile_all()
    done = subprocess.run(
        [*under_qemu(TREE / "src" / "cli" / "deepfreeze"), "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    say(f"the program says: {(done.stdout + done.stderr).strip()}")
    total = Outcome(failed=int(done.returncode != 0))
    say("running the tests under qemu: some minutes")
    with ThreadPoolExecutor(int(build.environment()["CMAKE_BUILD_PARALLEL_LEVEL"])) as pool:
        for outcome in pool.map(tried, test_programs()):
            total.add(outcome)
    return total


def main() -> int:
    try:
        total = check()
    except ArchiveError as error:
        print(f"check-aarch64: {error}", file=sys.stderr, flush=True)
        total = Outcome(failed=1)
    for why, times in sorted(total.reasons.items()):
        print(f"skipped: {times} x {why}")
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
