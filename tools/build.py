#!/usr/bin/env python3
"""`make build`: the C++ core, its tests and the wheel from one tree, build/release, into .venv.

A step is done again only if a source changed (by content). `build.py package` leaves the tests out,
for `make demo`. `build.py asan` and `build.py tsan` make the sanitizer trees of CMakePresets.json.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from stamp import BUILD, ROOT, VENV, Stamp, digest, files_under

CORE = ("CMakeLists.txt", "CMakePresets.json", "cmake", "include", "src", "tests", "lab")
PACKAGE = ("pyproject.toml", "README.md", "LICENSE", "licenses", "python/src", "python/deepfreeze")
NOT_IN_PACKAGE = ("tests", "lab")
WHEELS = ("release", "package")  # the second is the first without tests and benchmarks
PRESETS = ("debug", "asan", "tsan", "coverage")


WORDS = {
    "package": "compiling the C++ core and the Python extension: some minutes, the first time",
    "release": "compiling the C++ core, its tests and the Python extension",
}


def say(text: str) -> None:
    print(f"build: {text}", flush=True)


def sources(preset: str) -> list[Path]:
    folders = [name for name in CORE if preset != "package" or name not in NOT_IN_PACKAGE]
    core = [path for path in files_under(*folders) if path.suffix not in (".py", ".md")]
    return core + files_under(*PACKAGE) if preset in WHEELS else core


def environment() -> dict[str, str]:
    jobs = os.environ.get("JOBS") or str(len(os.sched_getaffinity(0)))
    return {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": jobs}


def run(command: list[str]) -> int:
    return subprocess.run(
        command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, check=False
    ).returncode


def build_wheel(tests: str) -> int:
    """The wheel and, if `tests` is ON, the C++ tests beside it in the same tree."""
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    command += ["install", "--verbose", "--no-build-isolation", "--no-deps", "--force-reinstall"]
    for setting in (
        "build-dir=build/release",
        f"cmake.define.DF_TESTS={tests}",
        f"cmake.define.DF_BENCH={tests}",
        "cmake.define.DF_PRECOMPILE=test",
        "cmake.define.DF_WERROR=ON",
        "cmake.define.CMAKE_CXX_COMPILER=g++",
    ):
        command += ["--config-settings", setting]
    return run([*command, "."])


def build_preset(preset: str) -> int:
    return run(["cmake", "--preset", preset]) or run(["cmake", "--build", "--preset", preset])


def stamp_of(preset: str) -> Stamp:
    """Both wheels have the same file: it tells which was installed last."""
    if preset not in WHEELS:
        return Stamp(BUILD / preset / ".stamp-build", digest(sources(preset), ""))
    # A new .venv has no package in it, whatever build/release says.
    owner = (VENV / ".stamp").read_text()
    return Stamp(VENV / ".stamp-build", digest(sources(preset), owner, preset))


def is_current(preset: str) -> bool:
    tree = BUILD / ("release" if preset in WHEELS else preset)
    enough = ("package", "release") if preset == "package" else (preset,)
    return (tree / "build.ninja").exists() and any(stamp_of(each).is_current() for each in enough)


def build(preset: str) -> int:
    if is_current(preset):
        return 0
    stamp = stamp_of(preset)
    stamp.clear()
    say(WORDS.get(preset, f"compiling {preset}"))
    start = time.monotonic()
    if preset in WHEELS:
        done = build_wheel("ON" if preset == "release" else "OFF")
    else:
        done = build_preset(preset)
    if done != 0:
        print(f"build: {preset} failed (see above)", file=sys.stderr, flush=True)
        return 1
    stamp.write()
    say(f"{preset} took {time.monotonic() - start:.0f} s")
    return 0


def main(arguments: list[str]) -> int:
    presets = arguments or ["release"]
    for preset in presets:
        if preset not in WHEELS + PRESETS:
            print(f"build: no such preset: {preset}", file=sys.stderr)
            return 2
        if build(preset) != 0:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
