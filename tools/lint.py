#!/usr/bin/env python3
"""`make lint`: every check that reads the sources without running them."""

from __future__ import annotations

import shutil
import subprocess
import sys

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
        [python, "tools/tidy.py"],
        [clang_format(), "--dry-run", "--Werror", *cpp_files()],
        [python, "-m", "ruff", "check", "--quiet", "."],
        [python, "-m", "ruff", "format", "--quiet", "--diff", "."],
        [python, "-m", "mypy"],
    ]


def rewrites() -> list[list[str]]:
    python = str(VENV / "bin" / "python")
    return [
        [clang_format(), "-i", *cpp_files()],
        [python, "-m", "ruff", "check", "--quiet", "--fix", "--exit-zero", "."],
        [python, "-m", "ruff", "format", "--quiet", "."],
    ]


def run_all(commands: list[list[str]]) -> int:
    """Runs every command even after one failed, so that one call shows all there is to mend."""
    failed = []
    for command in commands:
        shown = " ".join(word for word in command if not word.endswith((".cc", ".h")))
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            failed.append(shown)
    for shown in failed:
        print(f"lint: failed: {shown}", file=sys.stderr, flush=True)
    return 1 if failed else 0


def main(arguments: list[str]) -> int:
    return run_all(rewrites() if arguments == ["--fix"] else checks())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
