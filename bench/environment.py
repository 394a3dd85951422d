#!/usr/bin/env python3
"""Makes build/bench-venv: what .venv has, and the peers of tools/requirements-bench.txt.

A second call only compares hashes. .venv must be there (`make setup`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from stamp import BUILD, VENV, Stamp, digest  # noqa: E402 (found by the line above)

BENCH_VENV = BUILD / "bench-venv"
REQUIREMENTS = ROOT / "tools" / "requirements-bench.txt"
WHERE_PACKAGES_ARE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def stop(text: str) -> int:
    print(f"bench: {text}", file=sys.stderr, flush=True)
    return 1


def packages_of(venv: Path) -> str:
    """The path of its site-packages; empty where it does not run."""
    command = [str(venv / "bin" / "python"), "-c", WHERE_PACKAGES_ARE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def make(shared: str) -> int:
    """A new environment that also finds what is in `shared`."""
    shutil.rmtree(BENCH_VENV, ignore_errors=True)
    command = [str(VENV / "bin" / "python"), "-m", "venv", str(BENCH_VENV)]
    if subprocess.run(command, check=False).returncode != 0:
        return stop("`.venv/bin/python -m venv build/bench-venv` failed (see above)")
    (Path(packages_of(BENCH_VENV)) / "shared.pth").write_text(shared + "\n")
    return 0


def install() -> int:
    pip = [str(BENCH_VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    command = [*pip, "install", "--quiet", "--progress-bar=off", "--no-deps"]
    command += ["-r", str(REQUIREMENTS)]
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        return stop("pip could not install tools/requirements-bench.txt (see above)")
    return 0


def main() -> int:
    shared = packages_of(VENV)
    if not shared:
        return stop("there is no .venv that runs; `make setup` makes it")
    stamp = Stamp(BENCH_VENV / ".stamp", digest([REQUIREMENTS, Path(__file__)], shared))
    if stamp.is_current():
        return 0
    print("bench: making build/bench-venv", flush=True)
    status = make(shared) or install()
    if status == 0:
        stamp.write()
    return status


if __name__ == "__main__":
    sys.exit(main())
