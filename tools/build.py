#!/usr/bin/env python3
"""`make build`: the C++ core, its tests and the wheel from one tree, build/release, into .venv.

A step is done again only if a source changed (by content). `build.py asan` and `build.py tsan` make
the sanitizer trees of CMakePresets.json.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from stamp import BUILD, ROOT, VENV, Stamp, digest, files_under

CORE = ("CMakeLists.txt", "CMakePresets.json", "cmake", "include", "src", "tests", "lab")
PACKAGE = ("pyproject.toml", "README.md", "LICENSE", "python/src", "python/deepfreeze")
PRESETS = ("debug", "asan", "tsan", "coverage")


def say(text: str) -> None:
    print(f"build: {text}", flush=True)


def sources(preset: str) -> list[Path]:
    core = [path for path in files_under(*CORE) if path.suffix not in (".py", ".md")]
    return core + files_under(*PACKAGE) if preset == "release" else core


def environment() -> dict[str, str]:
    jobs = os.environ.get("JOBS") or str(len(os.sched_getaffinity(0)))
    return {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": jobs}


def run(command: list[str]) -> int:
    return subprocess.run(
        command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, check=False
    ).returncode


def build_package() -> int:
    """The wheel, with the C++ tests beside it in the same tree."""
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    command += ["install", "--verbose", "--no-build-isolation", "--no-deps", "--force-reinstall"]
    for setting in (
        "build-dir=build/release",
        "cmake.define.DF_TESTS=ON",
        "cmake.define.DF_BENCH=ON",
        "cmake.define.DF_PRECOMPILE=test",
        "cmake.define.DF_WERROR=ON",
        "cmake.define.CMAKE_CXX_COMPILER=g++",
    ):
        command += ["--config-settings", setting]
    return run([*command, "."])


def build_preset(preset: str) -> int:
    return run(["cmake", "--preset", preset]) or run(["cmake", "--build", "--preset", preset])


def build(preset: str) -> int:
    # A new .venv has no package in it, whatever build/release says.
    owner = (VENV / ".stamp").read_text() if preset == "release" else ""
    folder = VENV if preset == "release" else BUILD / preset
    stamp = Stamp(folder / ".stamp-build", digest(sources(preset), owner))
    if stamp.is_current() and (BUILD / preset / "build.ninja").exists():
        return 0
    stamp.clear()
    say(f"compiling {preset}")
    start = time.monotonic()
    done = build_package() if preset == "release" else build_preset(preset)
    if done != 0:
        print(f"build: {preset} failed (see above)", file=sys.stderr, flush=True)
        return 1
    stamp.write()
    say(f"{preset} took {time.monotonic() - start:.0f} s")
    return 0


def main(arguments: list[str]) -> int:
    presets = arguments or ["release"]
    for preset in presets:
        if preset != "release" and preset not in PRESETS:
            print(f"build: no such preset: {preset}", file=sys.stderr)
            return 2
        if build(preset) != 0:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
