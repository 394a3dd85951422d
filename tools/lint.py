#!/usr/bin/env python3
"""`make lint`: every check that reads the sources without running them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from stamp import ROOT, VENV, files_under

CPP_FOLDERS = ("include", "src", "python/src", "tests", "lab", "examples")


def cpp_files() -> list[str]:
    found = [path for path in files_under(*CPP_FOLDERS) if path.suffix in (".cc", ".h")]
    return [str(path.relative_to(ROOT)) for path in found]


def clang_format() -> str:
    return shutil.which("clang-format-19") or "clang-format"


def checks() -> list[list[str]]:
    python = str(VENV / "bin" / "python")
    return [
        [python, "-m", "mypy"],  # as long as all others: it begins first
        [python, "tools/tidy.py"],
        [clang_format(), "--dry-run", "--Werror", *cpp_files()],
        [python, "-m", "ruff", "check", "--quiet", "."],
        [python, "-m", "ruff", "format", "--quiet", "--diff", "."],
    ]


def rewrites() -> list[list[str]]:
    python = str(VENV / "bin" / "python")
    return [
        [clang_format(), "-i", *cpp_files()],
        [python, "-m", "ruff", "check", "--quiet", "--fix", "--exit-zero", "."],
        [python, "-m", "ruff", "format", "--quiet", "."],
    ]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def run_all(commands: list[list[str]], at_a_time: int = 1) -> int:
    """Runs every command even after one failed, so that one call shows all there is to mend."""
    failed = []
    with ThreadPoolExecutor(at_a_time) as pool:
        for command, done in zip(commands, pool.map(run, commands), strict=True):
            print(done.stdout, end="", flush=True)
            if done.returncode != 0:
                failed.append(" ".join(w for w in command if not w.endswith((".cc", ".h"))))
    for shown in failed:
        print(f"lint: failed: {shown}", file=sys.stderr, flush=True)
    return 1 if failed else 0


def main(arguments: list[str]) -> int:
    if arguments == ["--fix"]:
        return run_all(rewrites())
    return run_all(checks(), at_a_time=2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
